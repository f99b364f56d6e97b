"""The score of a trial of a tuning, from its rows."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from undrift.experiment.goals import Column
from undrift.experiment.judge import GLOBAL, lost_round, measured


def score(rows: Sequence[Mapping[str, Any]], by: str = "best", judged_by: str = GLOBAL) -> float:
    """The mean accuracy on clients' held-out examples, in the best or the last round; nan if training diverged.

    Of a metric of which less is better it is the negative. Without tests of the clients it is the column that judges.

    Args:
        rows: of the rounds, in order.
        by: "best" or "last".
        judged_by: the column by which the method is judged; with "accuracy" the global model is scored.
    """
    if diverged(rows):
        return float("nan")
    judge, own = Column(judged_by), f"client_{judged_by}"
    column = own if not judge.personal and measured(rows, own) else judge
    sign = -1.0 if judge.minimised else 1.0
    if by == "last" and lost_round(rows, column) is not None:
        return float("nan")
    scores = [sign * float(row[column]) for row in measured(rows, column)]
    return (max(scores) if by == "best" else scores[-1]) if scores else float("nan")


def diverged(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether training diverged: all uploads of some round were rejected, or its loss is not finite.

    Args:
        rows: of the rounds, in order.
    """
    return any((row["clients"] == 0 and row["rejected"]) or not isfinite(row.get("train_loss", 0.0)) for row in rows)
