"""What a run says of itself while it runs."""

import io
import logging
from pathlib import Path
from time import sleep

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.runs import tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.cli.progress import RunProgress
from undrift.runs import Config
from undrift.util.display import progress
from undrift.util.steps import LOG, tell, tell_rounds, tell_trial, warn

ROW = {"round": 1, "train_loss": 0.5, "accuracy": 0.25}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until it is set."""
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    return now


def test_a_log_begins_at_once_and_gets_a_line_every_half_minute(clock: list[float]) -> None:
    out = io.StringIO()
    with RunProgress(40, console=Console(file=out)) as shown:
        tell("loading %s", "cifar10")
        for round in (1, 2, 3):
            clock[0] = 20.0 * round
            shown.show_row({**ROW, "round": round})
        clock[0] = 75.0
        tell("round %d, client %d of %d", 4, 7, 10)
    assert out.getvalue().splitlines() == [
        "0 of 40 rounds done  loading cifar10  (0 s)",
        "2 of 40 rounds done  accuracy 25.00%  loss 0.500  (40 s)",
        "3 of 40 rounds done  accuracy 25.00%  loss 0.500  round 4, client 7 of 10  (75 s)",
    ]


def test_a_run_that_is_resumed_counts_from_its_checkpoint(clock: list[float]) -> None:
    out = io.StringIO()
    with RunProgress(None, console=Console(file=out)):
        tell("loading digits")
        tell_rounds(2, 4)
    assert out.getvalue().splitlines() == ["loading digits  (0 s)", "2 of 4 rounds done  (0 s)"]


def test_a_step_that_takes_long_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.5)
    out = io.StringIO()
    with RunProgress(2, console=Console(file=out)):
        tell("loading a large data set")
        sleep(2.5)
    lines = out.getvalue().splitlines()
    assert len(lines) >= 2 and all("loading a large data set" in line for line in lines)


@pytest.mark.quick
def test_trials_are_counted(clock: list[float]) -> None:
    out = io.StringIO()
    with RunProgress(None, console=Console(file=out)) as shown:
        show = shown.of_tuning(Config(rounds=20))
        for number in (2, 5):
            clock[0] += 30.0
            tell_trial(number, 4, f"lr-0.{number}")
            tell("loading it")
            clock[0] += 30.0
            show("", {**ROW, "round": 9})
    assert out.getvalue().splitlines() == [
        "trial 2 of 4 (lr-0.2)  loading it  (30 s)",
        "trial 2 of 4 (lr-0.2), 9 of 20 rounds done  accuracy 25.00%  loss 0.500  (60 s)",
        "trial 5 (lr-0.5)  loading it  (90 s)",
        "trial 5 (lr-0.5), 9 of 20 rounds done  accuracy 25.00%  loss 0.500  (120 s)",
    ]


def test_the_bar_says_the_same() -> None:
    out = io.StringIO()
    with RunProgress(40, console=Console(file=out, force_terminal=True, width=160)) as shown:
        tell_trial(1, 2, "fedavg/seed-0")
        shown.show_row(ROW, rounds=20)
    assert "trial 1 of 2 (fedavg/seed-0), round 1 of 20" in out.getvalue() and "accuracy 25.00%" in out.getvalue()


def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = (LOG.level, LOG.propagate, list(LOG.handlers))
    with RunProgress(1, console=Console(file=io.StringIO())):
        pass
    assert (LOG.level, LOG.propagate, LOG.handlers) == before
    with caplog.at_level(logging.INFO):
        tell("round 1, client 1 of 1")
    assert not caplog.records  # a library prints nothing unless it is asked


@pytest.mark.usefixtures("tiny")
def test_a_run_tells_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    arguments = ["fedper", "--clients", "3", "--cohort", "2", "--rounds", "1", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["run", *arguments])
    assert done.exit_code == 0, done.output
    for step in (
        "loading fashion-mnist",
        "splitting fashion-mnist over clients",
        "round 1, 2 clients",
        "round 1, client 2 of 2",
        "round 1, evaluating",
        "round 1, personal model 3 of 3",
    ):
        assert f"  {step}  (" in done.stderr, step


def test_a_slow_evaluation_is_named_once() -> None:
    out = io.StringIO()
    with RunProgress(40, console=Console(file=out)) as shown:
        row = {"round": 1, "train_loss": 2.0, "seconds": 14.4, "evaluate_seconds": 20.0}
        shown.show_row(row)
        assert "evaluation" not in out.getvalue(), "not much longer than the training"
        shown.show_row({**row, "seconds": 1.0, "evaluate_seconds": 5.0})
        assert "evaluation" not in out.getvalue(), "short"
        for _ in range(2):
            shown.show_row({**row, "evaluate_seconds": 352.5})
    hint = "The evaluation took 352 s, the training of the round 14 s: --set output.evaluate_every=10 evaluates"
    assert out.getvalue().count(hint) == 1


def test_rejected_uploads_of_one_kind_are_counted_in_one_line() -> None:
    out, gate = io.StringIO(), logging.getLogger("undrift.core.server.gate")
    with RunProgress(3, console=Console(file=out, width=200)):
        for round in (1, 2, 3):
            for client in range(40):
                gate.warning("round %d, client %d: a value is not finite (loss)", round, client)
        gate.warning("round 3, client 7: its training failed")
    lines = [line for line in out.getvalue().splitlines() if "rounds done" not in line]
    assert lines == [
        "round 1, client 0: a value is not finite (loss)",
        "round 3, client 7: its training failed",
        "120 uploads were rejected: a value is not finite (loss)",
    ]


def test_a_warning_that_is_repeated_is_counted() -> None:
    out = io.StringIO()
    with RunProgress(3, console=Console(file=out, width=200)):
        for _ in range(5):
            warn("rows.csv: left out as inputs: name (900 different texts)")
        warn("seed %d is slow", 4)
    lines = [line for line in out.getvalue().splitlines() if "rounds done" not in line]
    assert lines == [
        "rows.csv: left out as inputs: name (900 different texts)",
        "seed 4 is slow",
        "5 times: rows.csv: left out as inputs: name (900 different texts)",
    ]
