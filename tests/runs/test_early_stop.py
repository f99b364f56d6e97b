"""`stop_after`: a run that no longer improves ends, at the same round and with the same bits after a stop."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.cli.results.health import health
from undrift.report.index import index_rows
from undrift.runs import Config, resume, start, verify
from undrift.runs.folder.judge import Plateau
from undrift.runs.settings.schema import ConfigError
from undrift.studies import Comparison, compare
from undrift.util.storage.metrics import Metrics

pytestmark = pytest.mark.usefixtures("tiny")
STILL = {**RUN, "rounds": 9, "local": {**RUN["local"], "lr": 1e-9}}
"""A run whose accuracy is that of its first round for ever."""


def plateau_of(rows: list[dict[str, Any]], judged_by: str = "accuracy") -> list[int]:
    """The rounds without improvement after each row."""
    counted = Plateau(judged_by)
    out = []
    for row in rows:
        counted.take(row)
        out.append(counted.stale)
    return out


@pytest.mark.quick
def test_rounds_without_improvement_are_counted_where_the_run_is_evaluated() -> None:
    values = [0.1, None, 0.3, 0.3, 0.2, None, 0.4]
    rows = [{"round": i + 1} | ({} if x is None else {"accuracy": x}) for i, x in enumerate(values)]
    assert plateau_of(rows) == [0, 0, 0, 1, 2, 2, 0]
    assert plateau_of([{"round": i + 1, "mae": x} for i, x in enumerate([3.0, 2.0, 2.5])], "mae") == [0, 0, 1]
    assert plateau_of([{"round": 1, "mae": float("nan")}, {"round": 2, "mae": float("nan")}], "mae") == [1, 2]


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("method", ["scaffold", "fedper"])
def test_the_run_ends_at_the_round_and_with_the_bits_of_its_own_rows(method: str, tmp_path: Path) -> None:
    """Whole, stopped in the middle and resumed, or with few checkpoints: one round, one hash."""
    own = {**RUN, "method": method, "rounds": 12, "holdout": 0.2, "output": {"personal_every": 1}}
    whole = start(Config.build(own), tmp_path / "whole")
    stale = plateau_of(Metrics(tmp_path / "whole" / "metrics.jsonl").rows(), whole.summary["judged_by"])
    wanted = max(stale[:-1])  # a number of rounds that is reached before the end
    end = stale.index(wanted) + 1
    expected = start(Config.build({**own, "rounds": end}), tmp_path / "shorter")
    early = start(Config.build({**own, "stop_after": wanted}), tmp_path / "early")
    assert (early.summary["rounds"], early.sha256) == (end, expected.sha256)
    assert early.summary["stop_after"] == wanted and "stop_after" not in expected.summary

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == end - 1:
            raise KeyboardInterrupt

    rare = {**own, "stop_after": wanted, "output": {**own["output"], "checkpoint_every": 5, "keep_best": True}}
    with pytest.raises(KeyboardInterrupt):
        start(Config.build(rare), tmp_path / "again", interrupt)
    assert resume(tmp_path / "again").sha256 == expected.sha256
    assert verify(tmp_path / "again").intact and verify(tmp_path / "early").intact
    more = resume(tmp_path / "early", stop_after=0)
    assert more.sha256 == whole.sha256 and more.summary["rounds"] == 12


def test_a_run_that_stopped_has_ended_everywhere(tmp_path: Path) -> None:
    folder, values = tmp_path / "run", {**STILL, "stop_after": 3}
    assert start(Config.build(values), folder).summary["rounds"] == 4
    assert not start(folder=folder, resume=True, **values).trained
    assert not resume(folder).trained
    assert health(folder).state == "ended"
    assert [row.state for row in index_rows([folder])] == ["done"]
    assert resume(folder, stop_after=5).summary["rounds"] == 6
    assert not resume(folder, stop_after=2).trained  # it has stopped improving for longer than that
    shown = CliRunner().invoke(app, ["resume", str(folder)])
    assert f"it did not improve for 5 rounds; for more: undrift resume {folder} --stop-after 10" in shown.stderr
    assert "stopped after round 6: no better accuracy for 5 rounds" in shown.stdout


def test_the_runs_of_a_comparison_stop_one_by_one(tmp_path: Path) -> None:
    base = {**STILL, "stop_after": 2}
    comparison = Comparison.build(
        {"methods": [{"method": "fedavg"}, {"method": "fedprox"}], "seeds": [0], "base": base}
    )
    for _ in range(2):
        assert not compare(comparison, tmp_path)["failures"]
    assert all(len(Metrics(path).rows()) == 3 for path in tmp_path.rglob("metrics.jsonl"))


def test_when_a_run_ends_is_not_part_of_its_identity() -> None:
    assert Config.build({**RUN, "stop_after": 3}).identity() == Config.build(RUN).identity()


@pytest.mark.quick
def test_the_old_name_of_max_idle_is_read() -> None:
    with pytest.warns(DeprecationWarning, match=r"output\.patience is now output\.max_idle"):
        assert Config.build({"output": {"patience": 3}}).output.max_idle == 3
    assert Config.build({"output": {"patience": 10}}).output.max_idle == 10  # stored runs have the default
    with pytest.raises(ConfigError, match=r"output\.patience is the old name of output\.max_idle; leave patience out"):
        Config.build({"output": {"patience": 3, "max_idle": 3}})
