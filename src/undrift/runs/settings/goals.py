"""By what a run is judged, as run files write it, and the other settings of runs on tasks of one's own.

A goal is the name of a metric, with "max" or "min" before it if its name does not tell: "mae", "max bleu". Personal
methods are judged by it on clients' own tests, with their own models; "global mae" judges the global model instead.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator

from undrift.core.tasks.evaluation import Direction, direction_of, find_metric, read_metric
from undrift.data.tasks.losses import check_loss
from undrift.runs.settings.named_arguments import named_text
from undrift.runs.settings.schema import LISTED
from undrift.util.naming.calls import Call
from undrift.util.naming.references import Reference

PERSONAL_PREFIX = "personal_"

_GOAL = re.compile(r"(?:(max|min) +)?(global +)?([A-Za-z][\w/-]{0,63})")
_DATA_ONLY = ("data", "partition", "model", "init", "frozen", "augment", "holdout", "proxy", "loss", "metrics")


class Column(str):
    """A column of the rows by which runs are judged: a text, its name, that knows whether more or less is better.

    Args:
        name: the column.
        direction: "max" or "min"; None goes by the name.

    Example:
        >>> column = Column("mae")
        >>> column, column.direction, column.better(0.1, 0.2), column.text(0.123456), Column("accuracy").text(0.5)
        ('mae', 'min', True, '0.1235', '50.00%')
    """

    direction: Direction

    def __new__(cls, name: str, direction: Direction | None = None) -> "Column":
        """A column with its direction."""
        column = super().__new__(cls, name)
        column.direction = direction or getattr(name, "direction", None) or direction_of(name)
        return column

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, (str(self), self.direction)

    @property
    def direction_entry(self) -> dict[str, str]:
        """Its direction as an entry of summaries; without one where more is better and the name implies it."""
        return {} if self.direction == direction_of(self) == "max" else {"direction": self.direction}

    @property
    def minimised(self) -> bool:
        """Whether less is better."""
        return self.direction == "min"

    @property
    def percent(self) -> bool:
        """Whether its numbers are shares, shown in percent."""
        return self.endswith("accuracy")

    @property
    def personal(self) -> bool:
        """Whether it is of clients' own models."""
        return self.startswith(PERSONAL_PREFIX)

    @property
    def metric(self) -> "Column":
        """The metric, whichever model it is of."""
        return Column(self.removeprefix(PERSONAL_PREFIX), self.direction)

    @property
    def words(self) -> str:
        """Its name in a text."""
        return self.replace("_", " ")

    @property
    def kind(self) -> str:
        """What its numbers are called where those of any metric can be: "accuracy" or "value"."""
        return "accuracy" if self.percent else "value"

    @property
    def best_key(self) -> str:
        """The key of its best value in summaries."""
        return "best_accuracy" if self.percent else "best"

    def better(self, one: float, other: float) -> bool:
        """Whether a value is better than another."""
        return one < other if self.minimised else one > other

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is as good as a target."""
        return value <= target if self.minimised else value >= target

    def text(self, value: float) -> str:
        """A value as a text: percent, or four digits."""
        return f"{value:.2%}" if self.percent else f"{value:.4g}"


class GoalText(NamedTuple):
    """A goal as run files write it: the metric, its direction, and whether the global model is judged in any case."""

    metric: str
    direction: Direction
    whole: bool = False

    @classmethod
    def parse(cls, text: str) -> "GoalText":
        """The goal in a text.

        Example:
            >>> GoalText.parse("mae"), str(GoalText.parse("min  global bleu"))
            (GoalText(metric='mae', direction='min', whole=False), 'min global bleu')
        """
        found = _GOAL.fullmatch(text.strip())
        if found is None:
            raise ValueError(f'goal: write a metric, "mae", "max bleu" or "min global mae", got {text[:80]!r}')
        direction: Direction = direction_of(found[3]) if found[1] is None else "min" if found[1] == "min" else "max"
        return cls(found[3].removeprefix(PERSONAL_PREFIX), direction, found[2] is not None)

    def __str__(self) -> str:
        return f"{self.direction} {'global ' if self.whole else ''}{self.metric}"

    def column(self, personal: bool) -> Column:
        """The column that judges a method, which has personal models or not."""
        return Column((PERSONAL_PREFIX if personal and not self.whole else "") + self.metric, self.direction)


ACCURACY = GoalText("accuracy", "max")
"""The goal of runs that have no other."""


def task_text(value: object) -> object:
    """A task as one text, "package.module:function(key=value)"; what is neither a text nor a table is returned."""
    if not isinstance(value, str | Mapping):
        return value
    try:
        name, given = named_text(value, '"package.module:function" beside its arguments')
    except ValueError as error:
        raise ValueError(f"task: {error}") from None
    return str(Call(name, (), given))


def metric_texts(texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Validate names of metrics; a reference is resolved when the run is prepared."""
    for text in texts or ():
        if Reference.parse(read_metric(text).name) is None:
            find_metric(text)
    return texts or None


def check_task(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse settings of data sets in a run on a task of one's own, which has its data and its model.

    Args:
        values: the settings.
        defaults: what they are when not given.
    """
    if values["task"] is None:
        return
    for key in _DATA_ONLY:
        if values[key] != defaults[key]:
            raise ValueError(f"{key}: the task {values['task']} has its own; leave out {key}, or task")


def drop_data_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Settings to write down: in a run on a task of one's own, without those of data sets."""
    return {key: x for key, x in values.items() if key not in _DATA_ONLY} if values.get("task") else values


TaskText = Annotated[str | None, BeforeValidator(task_text)]
LossText = Annotated[str | None, AfterValidator(check_loss)]
MetricTexts = Annotated[tuple[str, ...] | None, LISTED, AfterValidator(metric_texts)]
Goal = Annotated[str | None, AfterValidator(lambda text: None if text is None else str(GoalText.parse(text)))]
