"""The data of a run: a known data set, or data of the user's own, whose owners the partition may name."""

from collections.abc import Mapping
from typing import Any

from undrift.data import Dataset, load
from undrift.data.loader import known_source
from undrift.data.natural import ByColumn, natural
from undrift.data.schemes import Scheme

EXAMPLES = 100
"""A run that names no number of clients has no more than can have this many examples each."""


def load_data(name: str, arguments: Mapping[str, Any], scheme: Scheme) -> Dataset:
    """The data of a run; with the partition `column:NAME` that column names the owners of data of the user's own.

    Args:
        name: a known data set, a path or a reference.
        arguments: its arguments.
        scheme: the partition.
    """
    owned = natural(scheme)
    if not isinstance(owned, ByColumn) or known_source(name) is not None:
        return load(name, **arguments)
    if arguments.get("owner", owned.column) != owned.column:
        raise ValueError(f"{scheme}: {name} has owner = {arguments['owner']!r}; name the same column, or leave it out")
    return load(name, **{**arguments, "owner": owned.column})


def check_owner(dataset: Dataset, scheme: Scheme) -> None:
    """Raise if the partition `column:NAME` names a column that is not that of the data's owners."""
    owned = natural(scheme)
    if isinstance(owned, ByColumn) and dataset.owner != owned.column:
        use = f"; its owners are in {dataset.owner!r}: use natural" if dataset.owner else "; use another partition"
        raise ValueError(f"{scheme}: {dataset.name} has no column {owned.column!r} of owners{use}")


def default_clients(examples: int, most: int) -> int:
    """How many clients a run has that names no number: `most`, or fewer if the data are small.

    Args:
        examples: how many training examples there are.
        most: the number for large data sets.

    Example:
        >>> default_clients(60_000, 100), default_clients(1_438, 100), default_clients(30, 100)
        (100, 14, 1)
    """
    return max(1, min(most, examples // EXAMPLES))
