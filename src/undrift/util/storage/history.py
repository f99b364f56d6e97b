"""The rows of a training, one per round, for tables, data frames and plots."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from undrift.util.display.html import html_table, short_text

SHOWN = 10
"""How many rows a notebook shows."""

_TRAINING = frozenset(
    ("round", "clients", "rejected", "lr", "drift", "client_distance", "client_norm", "mean_norm", "gradients")
)
_SPENT = ("seconds", "bytes_up", "bytes_down")


class History:
    """Rows of numbers, one per round; a column need not have a number in every row.

    `len`, iteration and an index give rows, a column's name gives the list of its values with None where there is none.

    Args:
        rows: the rows in order, each with the key "round", counted from 1.

    Example:
        >>> history = History([{"round": 1, "train_loss": 2.0}, {"round": 2, "train_loss": 1.5, "accuracy": 0.5}])
        >>> history
        History(2 rounds: train_loss 1.5, accuracy 0.5)
        >>> history[-1]["accuracy"], history["accuracy"], history.columns
        (0.5, [None, 0.5], ('round', 'train_loss', 'accuracy'))
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._rows = [dict(row) for row in rows]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(dict.fromkeys(name for row in self._rows for name in row))

    @property
    def measured(self) -> tuple[str, ...]:
        """The columns that measure the model: the training loss and what was evaluated."""
        other = ("." in name or name in _TRAINING or name.endswith(_SPENT) for name in self.columns)
        return tuple(name for name, skipped in zip(self.columns, other, strict=True) if not skipped)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add the row of a round."""
        self._rows.append(dict(row))

    def extend(self, values: Mapping[str, Any]) -> None:
        """Add columns to the last row."""
        self._rows[-1].update(values)

    def rewind(self, round: int) -> None:
        """Delete the rows after a round, because these rounds will be run again."""
        self._rows = [row for row in self._rows if row["round"] <= round]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> "History": ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...

    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, slice):
            return History(self._rows[key])
        if isinstance(key, int):
            return self._rows[key]
        if key not in self.columns:
            raise KeyError(f"no column is named {key!r}; there are {', '.join(self.columns) or 'none yet'}")
        return [row.get(key) for row in self._rows]

    def to_frame(self) -> Any:
        """The rows as a data frame of pandas, else of polars, else as a table of pyarrow: what is installed."""
        columns = {name: self[name] for name in self.columns}
        try:
            import pandas

            return pandas.DataFrame(columns)
        except ImportError:
            pass
        try:
            import polars

            return polars.DataFrame(columns)
        except ImportError:
            import pyarrow

            return pyarrow.table(columns)

    def plot(self, *columns: str, axes: Any = None) -> Any:
        """Draw columns over the rounds, each in axes of its own, and return the axes as a list.

        Args:
            columns: their names; none draws those of `measured`.
            axes: matplotlib axes to draw into, one for each column, for example to compare two histories.
        """
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot needs matplotlib: pip install 'undrift[plots]'") from error
        names = columns or self.measured
        if not names:
            raise ValueError("plot: there are no rounds yet; train first")
        if axes is None:
            axes = pyplot.subplots(1, len(names), figsize=(4.2 * len(names), 3.2), squeeze=False, layout="tight")[1]
            axes = list(axes[0])
        for name, place in zip(names, axes, strict=True):
            points = [(x, y) for x, y in zip(self["round"], self[name], strict=True) if y is not None]
            place.plot(*zip(*points, strict=True), marker="." if len(points) < 40 else None)
            place.set(xlabel="round", title=name.replace("_", " "))
        return axes

    def last(self) -> dict[str, Any]:
        """The last number of each of the columns `measured`."""
        found = {name: [x for x in self[name] if x is not None] for name in self.measured}
        return {name: values[-1] for name, values in found.items() if values}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {short_text(value)}" for name, value in list(self.last().items())[:4])
        return f"History({len(self)} rounds{': ' if shown else ''}{shown})"

    def _repr_html_(self) -> str:
        """The last rows, for notebooks."""
        names = ("round", "clients", *self.measured)
        rows = [[row.get(name) for name in names] for row in self._rows[-SHOWN:]]
        more = f"the last {SHOWN} of {len(self)} rounds; " if len(self) > SHOWN else ""
        note = f"{more}{len(self.columns)} columns: to_frame() has all"
        return html_table([name.replace("_", " ") for name in names], rows, note=note)
