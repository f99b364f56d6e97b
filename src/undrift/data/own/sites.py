"""A table whose rows lie at several sites, prepared alike at all of them, without a row that leaves its site.

`prepare_sites` puts questions to every site and makes one `Preprocess` of the answers: the categories of texts, the
classes, fill values, means and deviations over all training rows, as if they were one table. `Site` answers.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.preprocess import InputColumn, Preprocess
from undrift.data.own.columns import Reading, training_rows
from undrift.data.own.files import find_files
from undrift.data.own.labels import MANY
from undrift.data.own.rows import fit, fit_targets, is_missing, is_text
from undrift.data.own.statistics import Arrays, answer

COLUMNS = "columns"
"""The first question: what kind of column each is, and the different texts and classes."""


@dataclass(frozen=True)
class Question:
    """A question to every site.

    Args:
        name: `COLUMNS`, or a question of `undrift.data.own.statistics`.
        reading: which columns, and how they are read.
        part: of a question of a statistic, "inputs" or "targets".
        known: the columns with the categories of all sites, and the classes; None before they are known.
        given: arrays that belong to the question.
    """

    name: str
    reading: Reading
    part: str = ""
    known: Preprocess | None = None
    given: Arrays = field(default_factory=dict)

    def text(self) -> str:
        """All but the arrays as JSON, for `from_text`."""
        known = None if self.known is None else self.known.record()
        return json.dumps({"name": self.name, "part": self.part, "reading": asdict(self.reading), "known": known})

    @classmethod
    def from_text(cls, text: str, given: Arrays) -> "Question":
        """The question that `text` wrote, with its arrays.

        Args:
            text: what it wrote.
            given: the arrays.

        Example:
            >>> asked = Question(COLUMNS, Reading(target="y", inputs="a;b"))
            >>> Question.from_text(asked.text(), {}) == asked
            True
        """
        found = json.loads(text)
        known = None if found["known"] is None else Preprocess.from_record(found["known"])
        return cls(str(found["name"]), Reading(**found["reading"]), str(found["part"]), known, given)


@dataclass(frozen=True)
class SiteReply:
    """A site's answer.

    Args:
        facts: of its columns, as JSON values; empty for a statistic.
        arrays: numbers.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)


AskSites: TypeAlias = Callable[[Question], Sequence[SiteReply]]
"""Puts a question to every site, and returns their replies."""


class Site:
    """A site's table, which answers questions about its training rows.

    Args:
        name: its file or folder.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows: dict[str, Arrays] = {}

    def reply(self, question: Question) -> SiteReply:
        """The answer to a question.

        Args:
            question: from `prepare_sites`.
        """
        if question.name == COLUMNS:
            return SiteReply(self._facts(question.reading))
        if question.known is None or question.part not in ("inputs", "targets"):
            raise ValueError(f"a question about {question.part!r:.50} without columns; ask for {COLUMNS} first")
        key = f"{question.reading} {question.known}"
        if key not in self._rows:
            rows = training_rows(self._splits, question.reading, self.name, question.known)
            self._rows = {key: rows}
        return SiteReply(arrays=answer(self._rows[key][question.part], question.name, question.given))

    @cached_property
    def _splits(self) -> Mapping[str, Any]:
        return find_files(self.name).read()

    def _facts(self, reading: Reading) -> dict[str, Any]:
        """What every column that is used has: of inputs the different texts, of the target the classes."""
        return {
            name: _kind([self._values(name, columns) for columns in self._splits.values()], classes=name in targets)
            for targets in (_names(reading.target),)
            for name in (*targets, *_names(reading.inputs))
        }

    def _values(self, name: str, columns: Mapping[str, Any]) -> NDArray[Any]:
        """The values of a column that are not missing."""
        if name not in columns:
            raise DataError(f"{self.name} has no column {name!r}; found {', '.join(columns)}")
        if not isinstance(columns[name], np.ndarray) or columns[name].dtype.kind not in "iufbUS":
            raise DataError(f"{self.name}: column {name!r} is neither numbers nor texts; leave it out of inputs")
        return np.asarray(columns[name][~is_missing(columns[name])])


def prepare_sites(ask: AskSites, reading: Reading) -> Preprocess:
    """One way to prepare the rows of all sites, from sums over them.

    Args:
        ask: puts a question to every site.
        reading: which columns, by name, and how they are read.
    """
    if not reading.target or not reading.inputs:
        raise ValueError(
            "tables of several sites may differ: name the columns, as in target='stay', inputs='age;sex;ward'"
        )
    if reading.scale == "pooled":
        raise ValueError("scale='pooled' reads the rows of all sites together; give 'both', 'inputs' or 'none'")
    replies = [reply.facts for reply in ask(Question(COLUMNS, reading))]
    columns = tuple(_input(name, replies, reading) for name in _names(reading.inputs))
    labels, targets = _labels(replies, reading), tuple(_names(reading.target))
    outputs = len(labels) or len(targets)
    known = Preprocess("table", (len(columns),), outputs, labels, targets, columns=columns, encoding=reading.categories)

    def put(part: str, name: str, given: Arrays) -> list[Arrays]:
        return [reply.arrays for reply in ask(Question(name, reading, part, known, given))]

    made = replace(fit(partial(put, "inputs"), columns, reading), outputs=outputs, labels=labels, targets=targets)
    if not labels and reading.scale == "both":
        mean, std = fit_targets(partial(put, "targets"))
        made = replace(made, target_mean=mean, target_std=std)
    if not np.isfinite([*made.mean, *made.std, *made.target_mean, *made.target_std]).all():
        raise DataError("the sums over all sites are not finite; check the columns for huge numbers")
    return made


def _kind(parts: Sequence[NDArray[Any]], *, classes: bool) -> dict[str, Any]:
    """Whether a column has texts, whole or other numbers; its different texts, or classes."""
    if not sum(map(len, parts)):
        return {"kind": "empty", "values": []}
    if any(map(is_text, parts)):
        return {"kind": "texts", "values": sorted({x for own in parts for x in own.astype(str).tolist()})}
    different = np.unique(np.concatenate([own.astype(np.float64) for own in parts]))
    whole = bool((different == np.rint(different)).all())
    values = [str(int(x)) for x in different] if classes and whole and len(different) <= MANY else []
    return {"kind": "whole" if whole else "numbers", "values": values}


def _merge(name: str, replies: Sequence[Mapping[str, Any]]) -> tuple[set[str], set[str], bool]:
    """The kinds of a column at all sites, its different texts or classes, and whether every site named its own."""
    found = [one for facts in replies if (one := facts[name])["kind"] != "empty"]
    kinds = {str(one["kind"]) for one in found}
    if not kinds:
        raise DataError(f"column {name!r} has no value at any site; leave it out")
    if "texts" in kinds and len(kinds) > 1:
        raise DataError(f"column {name!r} has texts at one site and numbers at another; write it alike")
    return kinds, {str(x) for one in found for x in one["values"]}, all(one["values"] for one in found)


def _input(name: str, replies: Sequence[Mapping[str, Any]], reading: Reading) -> InputColumn:
    """An input with the categories of all sites."""
    kinds, texts, _ = _merge(name, replies)
    if "texts" not in kinds:
        return InputColumn(name)
    if reading.categories == "none":
        raise DataError(f"column {name!r} has texts, and categories='none' has no numbers for them; leave one out")
    return InputColumn(name, tuple(sorted(texts)))


def _labels(replies: Sequence[Mapping[str, Any]], reading: Reading) -> tuple[str, ...]:
    """The classes of all sites; empty if the target is a number to predict."""
    names = _names(reading.target)
    if reading.classes == 0 or len(names) > 1:
        return ()
    if reading.classes:
        return tuple(map(str, range(reading.classes)))
    kinds, values, named = _merge(names[0], replies)
    if "numbers" in kinds:
        return ()
    if not named or (kinds == {"whole"} and len(values) > MANY):
        raise DataError(
            f"column {names[0]!r} has more than {MANY} different whole numbers; to predict a number give classes=0, to "
            "have classes give how many"
        )
    return tuple(sorted(values, key=int if kinds == {"whole"} else str))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]
