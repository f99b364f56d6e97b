"""Rounds that are evaluated while the next one trains: same bits, same rows, exact after a stop in between."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.runs import Config, resume, start
from undrift.runs.loop import run
from undrift.runs.loop.metrics_row import Measure
from undrift.runs.loop.run import Behind
from undrift.runs.setup import open_simulation as engines

pytestmark = pytest.mark.usefixtures("tiny")


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, "method": "scaffold", "rounds": 5, **changes})


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows without times."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in row.items() if "seconds" not in name} for row in found]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that evaluated the global model."""
    names: list[str] = []
    test = Measure.test

    def noted(self: Measure, state: Any) -> dict[str, float]:
        names.append(threading.current_thread().name)
        return test(self, state)

    monkeypatch.setattr(Measure, "test", noted)
    return names


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are evaluated behind training on this process's engine too."""
    monkeypatch.setattr(run, "runs_behind", lambda _: True)
    monkeypatch.setattr(engines, "runs_behind", lambda _: True)


@pytest.mark.quick
def test_rounds_are_stored_in_order() -> None:
    stored: list[dict[str, Any]] = []
    with Behind() as rounds:
        for number in range(3):
            rounds.begin(lambda number=number: {"round": number}, stored.append)  # type: ignore[misc]
            assert len(stored) == number
    assert [row["round"] for row in stored] == [0, 1, 2]


def test_a_round_is_stored_before_an_error_leaves() -> None:
    stored: list[dict[str, Any]] = []

    def run_fails() -> None:
        with Behind() as rounds:
            rounds.begin(lambda: {"round": 1}, stored.append)
            raise KeyError

    with pytest.raises(KeyError):
        run_fails()
    assert stored == [{"round": 1}]


def test_an_evaluation_that_fails_raises_when_its_round_is_stored() -> None:
    rounds = Behind()
    rounds.begin(lambda: {"round": 1 / 0}, lambda _: None)
    with pytest.raises(ZeroDivisionError), rounds:
        rounds.finish()


@pytest.mark.sweep(every=4)
def test_same_bits_and_rows(tmp_path: Path, behind: None, threads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    late = start(settings(), tmp_path / "late")
    assert threads[:4] == ["evaluation_0"] * 4
    monkeypatch.setattr(run, "runs_behind", lambda _: False)
    threads.clear()
    now = start(settings(), tmp_path / "now")
    assert set(threads) == {"MainThread"}
    assert late.sha256 == now.sha256 and rows(late.folder) == rows(now.folder)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("keep", [1, 2])
def test_a_stop_while_a_round_is_evaluated_is_exact(
    keep: int, tmp_path: Path, behind: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(cohort=4, clients=4, output={"keep": keep, "lens_every": 0})
    whole = start(config, tmp_path / "whole")
    commit = run.commit

    def stopped(*values: Any, **more: Any) -> None:
        """Stop before the third round is stored, after the clients stored their states of the fourth."""
        if values[3].round == 3:
            raise KeyboardInterrupt
        commit(*values, **more)

    monkeypatch.setattr(run, "commit", stopped)
    with pytest.raises(KeyboardInterrupt):
        start(config, tmp_path / "run")
    assert [row["round"] for row in rows(tmp_path / "run")] == [1, 2]
    assert any((tmp_path / "run" / "clients").rglob("3"))  # states are named by the rounds before theirs
    monkeypatch.setattr(run, "commit", commit)
    assert resume(tmp_path / "run").sha256 == whole.sha256
    assert rows(tmp_path / "run") == rows(whole.folder)


@pytest.mark.sweep(every=0)
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's own
def test_on_ray(tmp_path: Path, threads: list[str]) -> None:
    pytest.importorskip("ray")
    one = start(settings(), tmp_path / "one")
    threads.clear()
    two = start(settings(engine={"name": "ray", "workers": 2}), tmp_path / "two")
    assert one.sha256 == two.sha256 and rows(one.folder) == rows(two.folder)
    assert threads[:4] == ["evaluation_0"] * 4
