"""Rows of a comparison: a method with its arguments, and what is different about it in one part of the table."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from undrift.runs.settings.config import Scalar
from undrift.runs.settings.named_arguments import NamedOrNone
from undrift.runs.settings.schema import Strict, merge_settings, validate
from undrift.studies.grid import GRID
from undrift.util.naming.names import suggest

ROWS = "rows"
"""The key of a setting whose tables override rows: label -> method, arguments, local or model."""


class Entry(Strict):
    """A row of the table.

    Args:
        method: an algorithm's name, a composition or a reference.
        label: the name of the row and of its folder; empty takes the method's name, which a composition has not.
        arguments: of the method.
        local: local settings of its own, if the comparison allows them (`own_local`).
        model: a model of its own, if the comparison allows it (`own_model`); None takes that of all rows.
    """

    shorthands = (GRID,)

    method: str
    label: str = ""
    arguments: dict[str, Scalar] = Field(default_factory=dict)
    local: dict[str, Any] = Field(default_factory=dict)
    model: NamedOrNone = None

    def values(self) -> dict[str, Any]:
        """Its settings of a run."""
        own = {"method": self.method, "arguments": self.arguments, "local": self.local}
        return own if self.model is None else {**own, "model": self.model}


def row_in(entry: Entry, setting: Mapping[str, Any], place: str = "settings") -> Entry:
    """A row as one part of the table has it.

    Args:
        entry: the row.
        setting: the settings of the part; its table `rows` overrides values of rows, label by label.
        place: what to call the part in errors.

    Example:
        >>> own = {"rows": {"fedsam": {"arguments": {"rho": 0.5}}}}
        >>> row_in(Entry(method="fedsam", label="fedsam", arguments={"rho": 0.1}), own).arguments
        {'rho': 0.5}
    """
    given = setting.get(ROWS, {}).get(entry.label, {})
    return (
        validate(Entry, merge_settings(entry.model_dump(), given), f"{place}.{ROWS}.{entry.label}") if given else entry
    )


def check_rows(setting: Mapping[str, Any], labels: Iterable[str], place: str) -> None:
    """Refuse overrides of rows that do not exist, or of what a part cannot override.

    Args:
        setting: the settings of a part.
        labels: those of the rows.
        place: what to call the part in errors.
    """
    rows, known = setting.get(ROWS, {}), list(labels)
    if not isinstance(rows, Mapping):
        raise ValueError(f"{place}.{ROWS}: write a table for each row, [{place}.{ROWS}.{known[0]}], got {rows!r}")
    for label, given in rows.items():
        if label not in known:
            raise ValueError(f"{place}.{ROWS}: no row is labelled {label!r}; {suggest(label, known)}")
        if not isinstance(given, Mapping) or "label" in given:
            raise ValueError(f"{place}.{ROWS}.{label}: write method, arguments, local or model, got {given!r}")
