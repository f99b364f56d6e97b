"""R11 in short: what a run holds does not grow with its rounds. `make soak` measures thousands of them."""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from undrift.util.storage.history import History

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "speed" / "soak.py"
    spec = importlib.util.spec_from_file_location("undrift_soak", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.sweep(every=2)
def test_forty_rounds_hold_no_more_than_one(soak: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    append, held = History.append, []

    def counted(self: History, row: object) -> None:
        append(self, row)  # type: ignore[arg-type]
        held.append(len(self))

    monkeypatch.setattr(History, "append", counted)
    found = soak.simulation(40)
    process = found["process"]
    assert len(held) == 40 and max(held) == 1, "rows are in metrics.jsonl and not in memory, too"
    assert found["warnings"] == [] and process["checkpoints"]["most"] == 4, "two checkpoints of two files"
    assert process["files"]["most"] - process["files"]["least"] <= 1
    assert process["threads"]["most"] == process["threads"]["least"]
    assert process["disk"]["most"] < 1 and process["rss"]["last"] - process["rss"]["first"] < 50


def test_a_trend_by_hand(soak: ModuleType) -> None:
    rounds = range(0, 1000, 10)
    found = soak.trend(rounds, [1000 if round < 100 else 5 + round / 500 for round in rounds])
    assert found["per_1000_rounds"] == pytest.approx(2) and found["first"] == 5.2 and found["most"] < 7


def test_sizes_leave_out_what_grows(soak: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(2**20))
    (tmp_path / "audit.jsonl").write_bytes(bytes(2**20))
    assert (soak.size_of(tmp_path), soak.size_of(tmp_path, ["audit.jsonl"])) == (2, 1)


def test_a_folder_that_vanishes_is_passed_over(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower deletes folders of apps while they are measured."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(bytes(2**20))
    known = os.scandir

    def without_b(path: Path) -> object:
        if Path(path).name == "b":
            raise FileNotFoundError(path)
        return known(path)

    monkeypatch.setattr(os, "scandir", without_b)
    assert soak.size_of(tmp_path) == 1


def test_a_part_that_ends_in_an_error_keeps_what_it_measured(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, asked = tmp_path / "soak.json", soak.start

    def ends(watch: Callable[[Mapping[str, Any]], None], **rest: Any) -> None:
        def until_twenty(row: Mapping[str, Any]) -> None:
            watch(row)
            if row["round"] == 20:
                raise RuntimeError("no more rounds")

        asked(watch=until_twenty, **rest)

    kept.write_text('{"deployment": {"rounds": 1}}')
    monkeypatch.setattr(soak, "start", ends)
    monkeypatch.setattr(sys, "argv", ["soak.py", "simulation", "--rounds", "40", "--into", str(kept)])
    with pytest.raises(SystemExit, match="True"):
        soak.main()
    found = json.loads(kept.read_text())
    assert found["simulation"]["error"] == "RuntimeError: no more rounds"
    assert found["simulation"]["process"]["rss"]["last"] > 0 and found["deployment"] == {"rounds": 1}
    assert "until_twenty" in capsys.readouterr().err, "where it came from"
