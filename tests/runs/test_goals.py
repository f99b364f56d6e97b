"""By what runs are judged: columns with a direction, goals as run files write them, and tables of other metrics."""

import pickle
from typing import Any

import pytest

from undrift import make
from undrift.core.local.settings import Local
from undrift.runs import Config, ConfigError
from undrift.runs.folder.judge import (
    config_column,
    evaluated_columns,
    judging_column,
    result_column,
    rounds_to,
    run_summary,
)
from undrift.runs.reading.best_round import KeepBest
from undrift.runs.settings.goals import Column, GoalText
from undrift.runs.settings.targets import read_targets
from undrift.studies.cost_to_target import cost_cells, curve
from undrift.studies.statistics import cells, judging_note, summarise
from undrift.studies.tune import score


def rows(values: list[float], **more: Any) -> list[dict[str, Any]]:
    head = {"clients": 2, "train_loss": 1.0, "bytes_up": 1, "bytes_down": 1, "gradients": 5, "seconds": 1.0}
    return [
        {"round": i, **head, "test_loss": x, "mae": x, "client_mae": 2 * x, **more, "evaluate_seconds": 1.0}
        for i, x in enumerate(values, 1)
    ]


ROWS = rows([0.5, 0.2, 0.3])
SPENT = {"rounds": 3, "gradients": 15, "seconds": 3.0, "bytes": 6}


def test_less_is_better() -> None:
    summary = run_summary(ROWS, "mae")
    assert (summary["judged_by"], summary["direction"], summary["best"], summary["best_round"]) == (
        "mae",
        "min",
        0.2,
        2,
    )
    assert (summary["mae"], summary["client_mae"], "best_accuracy" in summary) == (0.3, 0.6, False)
    assert (rounds_to(ROWS, 0.3, "mae"), rounds_to(ROWS, 0.1, "mae")) == (2, None)
    assert rounds_to(ROWS, 0.5, Column("mae", "max")) == 1 and run_summary(ROWS, Column("mae", "max"))["best"] == 0.5
    assert score(ROWS, "best", "mae") == -0.4 and score(ROWS, "last", "mae") == -0.6
    assert evaluated_columns(ROWS[0]) == ["test_loss", "mae", "client_mae"]


def test_a_direction_that_the_name_does_not_tell_is_written_down() -> None:
    column = Column("error_free", "max")
    found = run_summary([{**row, "error_free": row["mae"]} for row in ROWS], column)
    assert (found["direction"], found["best"], result_column(found).direction) == ("max", 0.5, "max")
    assert "direction" not in run_summary([{**row, "accuracy": row["mae"]} for row in ROWS])
    (row,) = summarise({"fedavg": {0: {**found, "curve": [], "spent": SPENT}}}, "fedavg")
    assert result_column(row).direction == "max"


def test_runs_judged_by_different_metrics_have_no_difference() -> None:
    shares = [{**row, "accuracy": 1 - row["mae"]} for row in ROWS]
    runs = {name: {0: {**run_summary(shares, name), "curve": [], "spent": SPENT}} for name in ("accuracy", "mae")}
    ours, theirs = summarise(runs, "accuracy")
    assert "last_difference" not in theirs and (ours["last"], theirs["last"]) == (0.7, 0.3)


def test_a_column_is_a_text_that_survives() -> None:
    column = Column("personal_bleu", "min")
    again = pickle.loads(pickle.dumps(column))
    assert (again, again.direction, again.metric.direction) == ("personal_bleu", "min", "min")
    assert Column(column).direction == "min" and Column("personal_accuracy").text(0.5) == "50.00%"
    assert column.words == "personal bleu" and column.personal and not column.metric.personal


@pytest.mark.parametrize(
    ("goal", "method", "column", "direction"),
    [
        (None, "fedavg", "accuracy", "max"),
        ("mae", "fedavg", "mae", "min"),
        ("max mae", "fedavg", "mae", "max"),
        ("mae", "ditto", "personal_mae", "min"),
        ("personal_mae", "ditto", "personal_mae", "min"),
        ("global f1", "ditto", "f1", "max"),
    ],
)
def test_goals(goal: str | None, method: str, column: str, direction: str) -> None:
    found = config_column(Config.build({"method": method, "goal": goal}))
    assert (found, found.direction) == (column, direction)
    assert judging_column(make(method), Local(), goal) == column
    if goal:
        text = str(GoalText.parse(goal))
        assert str(GoalText.parse(text)) == text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"goal": "as good as it gets"}, 'goal: write a metric, "mae", "max bleu" or "min global mae", got'),
        ({"target": 2.5}, r"target: must be a number in \(0, 1\]"),
        ({"loss": "huber"}, "loss: no loss is named 'huber'; .*your own is \"package.module:name\""),
        ({"metrics": ["f2"]}, "metrics: no metric is named 'f2'"),
        ({"task": "a:b", "data": "cifar10"}, "data: the task a:b has its own; leave out data, or task"),
        ({"task": "a:b", "holdout": 0.2}, "holdout: the task a:b has its own"),
        ({"task": {"clients": 3}}, 'task: write name = "package.module:function" beside its arguments'),
    ],
)
def test_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.build(values)


def test_new_keys_leave_the_identity_of_other_runs() -> None:
    plain = Config.build({})
    assert Config.build({"metrics": ["mae"], "goal": "mae", "target": 2.5}).identity() == plain.identity()
    assert Config.build({"loss": "mse"}).identity() != plain.identity()
    assert Config.build({"task": "a:b"}).identity() not in (plain.identity(), Config.build({"task": "a:c"}).identity())
    assert not {"task", "loss", "metrics", "goal"} & set(plain.model_dump(exclude_none=True))


@pytest.mark.quick
def test_tables_of_other_metrics() -> None:
    def result(values: list[float]) -> dict[str, Any]:
        its = rows(values)
        spent = {"rounds": 3, "gradients": 15, "seconds": 3.0, "bytes": 6}
        targets = read_targets([0.3, "baseline"], free=True)
        return {**run_summary(its, "mae"), "curve": curve(its, "mae"), "spent": spent, "targets": targets}

    runs = {
        "fedavg": {s: result([0.5, 0.4 + s / 10, 0.4]) for s in (0, 1)},
        "mine": {s: result([0.4, 0.3, 0.2]) for s in (0, 1)},
    }
    table = summarise(runs, "fedavg")
    assert table[1]["last_difference"] == pytest.approx(-0.2) and table[1]["direction"] == "min"
    headings, texts = cells(table)
    assert {"judged by", "best", "last", "clients"} <= set(headings) and not any("%" in name for name in headings)
    line = dict(zip(headings, texts[1], strict=True))
    assert (line["judged by"], line["best"], line["last vs fedavg"]) == ("mae", "0.2 ± 0", "-0.2 [-0.2, -0.2]")
    assert line["rounds to 0.3"] == "2.0 (2/2)" and line["rounds to fedavg's best"] == "1.0 (2/2)"
    assert cost_cells(table)[1][0][:3] == ["0.3", "fedavg", "- (0/2)"]
    assert judging_note(table).startswith("Mae: lower is better")


def test_the_best_round_is_kept_by_its_direction(tmp_path: Any) -> None:
    class Kept:
        folder, saved = tmp_path, list[Any]()

        def save(self, state: Any) -> None:
            self.saved.append(state.round)

        def rounds(self) -> list[int]:
            return [1]

        def rewind(self, round: int) -> None:
            """No later round is kept."""

    class State:
        accepted = None

        def __init__(self, round: int) -> None:
            self.round = round

    keeping = KeepBest(Kept(), tmp_path, "mae", ROWS[:1])  # type: ignore[arg-type]
    assert [keeping.after(State(row["round"]), row) for row in rows([0.6, 0.4, 0.4, 0.1])] == [False, True, False, True]  # type: ignore[arg-type]
    assert Kept.saved == [2, 4]
