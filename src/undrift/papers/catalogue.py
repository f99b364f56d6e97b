"""The experiments of the papers: a folder for each paper, a TOML file for each table and figure.

PAPER/paper.toml       title, source, what all its experiments share, and the numbers that need no experiment
PAPER/published.toml   the published numbers: item -> setting -> row -> number
PAPER/table1.toml      the experiment behind Table 1: a comparison, its reduction, its figures
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from undrift.runs.settings.schema import ConfigError, Strict, merge_settings, read_toml, validate
from undrift.runs.settings.targets import read_targets
from undrift.studies.compare import ROWS
from undrift.util.naming.names import suggest

ROOT = Path(str(files("undrift.papers")))

Targeted = Literal["rounds", "cost", "total_seconds"]
"""What it takes to reach a target: rounds, traffic in units of the baseline's whole run, seconds of training."""

_PLAIN = ("accuracy", "std", "seconds")


def split_measure(text: str) -> tuple[str, float | str | None]:
    """The name of a measure, and the target it refers to; None is the first target of the comparison.

    Args:
        text: accuracy and std in percent; seconds, per round; or one of `Targeted`, alone or with a target.

    Example:
        >>> split_measure("rounds@0.7"), split_measure("cost@baseline"), split_measure("rounds")
        (('rounds', 0.7), ('cost', 'baseline'), ('rounds', None))
    """
    name, at, target = text.partition("@")
    if name not in (get_args(Targeted) if at else (*_PLAIN, *get_args(Targeted))):
        known = ", ".join((*_PLAIN, *get_args(Targeted)))
        raise ValueError(f"{text!r} is not a measure; write {known}, or with a target, as in rounds@0.7")
    return name, read_targets(_number(target))[0].key if at else None


def _number(text: str) -> float | str:
    """A number if it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def _measure(text: str) -> str:
    split_measure(text)
    return text


Measure = Annotated[str, AfterValidator(_measure)]
Cell = float | tuple[float, float] | dict[Measure, float]


class Small(Strict):
    """How an experiment is reduced so that it fits a machine with two cores.

    Args:
        base: overrides the settings that all parts share.
        parts: name of a part -> overrides its own settings.
        settings: the parts that stay; all if empty.
        methods: the rows that stay; all if empty.
        seeds: the seeds; those of the experiment if empty.
    """

    base: dict[str, Any] = Field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = Field(default_factory=dict)
    settings: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


class Drawing(Strict):
    """A figure to draw from the runs: its kind, as `undrift figure list` has it, and the options of that kind.

    Args:
        kind: of the figure.
        options: of the kind, for example over = "rho".
        methods: the rows to draw; all if empty.
        settings: the parts to draw; all if empty.
    """

    kind: str
    options: dict[str, Any] = Field(default_factory=dict)
    methods: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def shows(self, setting: str, label: str) -> bool:
        """Whether it draws a row of a part."""
        return (not self.methods or label in self.methods) and (not self.settings or setting in self.settings)


class Item(Strict):
    """A table or figure of a paper.

    Args:
        number: as in the paper, for example "Table VIII".
        about: what it shows.
        differs: what differs from the paper, and why; empty if nothing is known to.
        reads: whether the paper reports the best or the last accuracy of a run.
        runs: the item whose runs it uses; empty if it has a comparison of its own.
        comparison: the experiment at the paper's scale: the content of a file for `undrift compare`.
        small: the experiment at small scale.
        figures: what to draw.
    """

    number: str
    about: str
    differs: str = ""
    reads: Literal["best", "last"] = "last"
    runs: str = ""
    comparison: dict[str, Any] = Field(default_factory=dict)
    small: Small = Small()
    figures: tuple[Drawing, ...] = ()

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.runs) == bool(self.comparison):
            raise ValueError(f"{self.number}: write either [comparison] or runs, the item whose runs it uses")
        return self


class Paper(Strict):
    """A paper.

    Args:
        name: the name of its folder.
        title: of the paper.
        base: settings that all its experiments share.
        small: settings that all its experiments share at small scale.
        without: number -> why there is no experiment behind it.
        items: key -> table or figure; the key is the name of its file.
        published: key -> setting -> row -> published number, in percent; a pair is mean and standard deviation, and a
            table has other measures, as in { "rounds@0.7" = 97, seconds = 15.03 }.
    """

    name: str
    title: str
    base: dict[str, Any] = Field(default_factory=dict)
    small: dict[str, Any] = Field(default_factory=dict)
    without: dict[str, str] = Field(default_factory=dict)
    items: dict[str, Item] = Field(default_factory=dict)
    published: dict[str, dict[str, dict[str, Cell]]] = Field(default_factory=dict)

    def item(self, key: str) -> Item:
        """The table or figure with this key, or with this number ("Table VIII")."""
        for name, item in self.items.items():
            if key.lower().replace(" ", "") in (name, item.number.lower().replace(" ", "")):
                return item
        for number, why in self.without.items():
            if key.lower().replace(" ", "") == number.lower().replace(" ", ""):
                raise ConfigError(f"{self.name} {number}: there is nothing to run: {why}")
        raise ConfigError(f"{self.name} has no {key!r}; {suggest(key, self.items)}")

    def key(self, item: Item) -> str:
        """The key of one of its items."""
        return next(name for name, other in self.items.items() if other is item)

    def values(self, item: Item, scale: Literal["paper", "small"] = "paper") -> dict[str, Any]:
        """The comparison of an item, for `Comparison.build`.

        Args:
            item: the table or figure.
            scale: "paper", or "small" for the documented reduction.
        """
        owner = self.items[item.runs] if item.runs else item
        whole = merge_settings({"base": self.base, "name": f"{self.name}, {owner.number}"}, owner.comparison)
        return whole if scale == "paper" else _reduce(whole, self.small, owner.small)


def papers() -> tuple[str, ...]:
    """The names of the papers.

    Example:
        >>> papers()
        ('fedfft', 'fedfsa', 'fedscam', 'fedwmsam', 'specgrad')
    """
    return tuple(sorted(path.parent.name for path in ROOT.glob("*/paper.toml")))


@cache
def paper(name: str) -> Paper:
    """A paper with all its items, validated.

    Args:
        name: one of `papers()`.
    """
    if name not in papers():
        raise ConfigError(f"no paper is named {name!r}; {suggest(name, papers())}")
    folder = ROOT / name
    loaded = validate(Paper, {"name": name, **read_toml(folder / "paper.toml")}, f"{name}/paper.toml")
    published = read_toml(folder / "published.toml")
    items = {
        path.stem: validate(Item, read_toml(path), f"{name}/{path.name}")
        for path in sorted(folder.glob("*.toml"), key=_order)
        if path.stem not in ("paper", "published")
    }
    return validate(Paper, {**loaded.model_dump(), "items": items, "published": published}, f"{name}/published.toml")


def _order(path: Path) -> tuple[str, int, str]:
    """Tables before figures, each by number."""
    digits = "".join(filter(str.isdigit, path.stem))
    return ("0" if path.stem.startswith("table") else "1"), int(digits or 0), path.stem


def _reduce(whole: Mapping[str, Any], shared: Mapping[str, Any], small: Small) -> dict[str, Any]:
    """A comparison at small scale: reduced settings, fewer parts, rows and seeds."""
    base = merge_settings(merge_settings(whole["base"], shared), small.base)
    rows = [row for row in whole["methods"] if not small.methods or _label(row) in small.methods]
    settings = {
        name: _without_rows(merge_settings(values, small.parts.get(name, {})), [_label(row) for row in rows])
        for name, values in whole.get("settings", {}).items()
        if not small.settings or name in small.settings
    }
    reduced = {**whole, "base": base, "settings": settings, "methods": rows}
    return {**reduced, "seeds": small.seeds} if small.seeds else reduced


def _without_rows(setting: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """The settings of a part without overrides of rows that were left out."""
    kept = {label: values for label, values in setting.get(ROWS, {}).items() if label in labels}
    return {key: value for key, value in setting.items() if key != ROWS} | ({ROWS: kept} if kept else {})


def _label(row: Mapping[str, Any]) -> str:
    """The label of a row, which is its method's name if it has none."""
    return str(row.get("label") or row["method"])
