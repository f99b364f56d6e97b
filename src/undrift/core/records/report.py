"""What blocks report of a round: named scalars that are recorded and change nothing.

A block declares the names in `reports`. A name that ends in "/*" is a family, such as one number per layer: the block
reports "chosen/conv1", "chosen/conv2", and so on.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isfinite, sqrt
from typing import TypeAlias

from torch import Tensor

Scalars: TypeAlias = Mapping[str, float | Tensor]
"""Name -> a number or a tensor of one element."""

Reported: TypeAlias = dict[str, float | Sequence[float]]
"""What a server's blocks report, by name: one number, or several of which mean and spread are recorded."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(/\*)?")
_SPREAD = ("_std", "_min", "_max")
_MOST = 1e100  # larger values are dropped: their squares could not be summed


def check_names(owner: str, names: object) -> None:
    """Refuse a declaration of reports that is no tuple of names, or whose names could collide with other columns."""
    if not isinstance(names, tuple):
        raise TypeError(f'{owner}: reports must be a tuple of names, as in reports = ("radius",); got {names!r}')
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith(_SPREAD):
            raise TypeError(
                f"{owner}: {name!r} cannot be reported: use lower-case letters, digits and underscores, /* at the end "
                f"for a family, and no ending of a column's spread ({', '.join(_SPREAD)})"
            )


def is_declared(name: str, names: Iterable[str]) -> bool:
    """Whether a reported name is one of those declared, or of a declared family.

    Example:
        >>> [is_declared(name, ("radius", "chosen/*")) for name in ("radius", "chosen/conv1", "h")]
        [True, True, False]
    """
    head, slash, rest = name.partition("/")
    return (f"{head}/*" if slash and rest else name) in names


def collect(where: str, names: Iterable[str], values: Scalars) -> dict[str, float]:
    """A block's report as floats, without values that are not finite; an undeclared name is an error.

    Args:
        where: slot, block and hook, for the error.
        names: what the block declares.
        values: what it reported.
    """
    numbers = {name: float(x) for name, x in values.items()}
    unknown = [name for name in numbers if not is_declared(name, names)]
    if unknown:
        raise ValueError(f"{where} reports {unknown[0]!r}, which is not declared: add it to the block's reports")
    return {name: x for name, x in numbers.items() if sound(x)}


def sound(x: float) -> bool:
    """Whether a value can be summed up: finite and not immense."""
    return isfinite(x) and abs(x) <= _MOST


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """The columns of a name: mean, standard deviation, smallest and largest; of a family, the mean only.

    Sums are exact, so the order of the values does not matter.

    Example:
        >>> spread("radius", [1.0, 3.0])
        {'radius': 2.0, 'radius_std': 1.0, 'radius_min': 1.0, 'radius_max': 3.0}
    """
    low, high = min(values), max(values)
    mean = min(max(fsum(values) / len(values), low), high)  # equal values have themselves as mean
    if "/" in name:
        return {name: mean}
    deviation = sqrt(fsum((x - mean) ** 2 for x in values) / len(values))
    return {name: mean, f"{name}_std": deviation, f"{name}_min": low, f"{name}_max": high}
