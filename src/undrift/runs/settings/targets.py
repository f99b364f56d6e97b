"""Targets: accuracies to reach, as numbers or as shares of the best accuracy of a comparison's baseline."""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pydantic import ValidationInfo

_SHARE = re.compile(r"\s*(?:([0-9.]+(?:e-?[0-9]+)?)\s*\*\s*)?baseline\s*")
_FREE = ("task", "loss", "metrics", "goal")  # settings of runs that may be judged by other metrics than accuracy
_VALID = 'a number in (0, 1], such as 0.7, or, in a comparison, "baseline" or "0.95 * baseline"'


@dataclass(frozen=True)
class Target:
    """An accuracy to reach.

    Args:
        value: the accuracy or, if `relative`, its ratio to the best accuracy of the baseline.
        relative: whether it depends on the baseline.

    Example:
        >>> Target(0.7).accuracy(None), Target(0.5, relative=True).accuracy(0.8), Target(0.5, relative=True).key
        (0.7, 0.4, '0.5 * baseline')
    """

    value: float
    relative: bool = False

    @property
    def key(self) -> float | str:
        """As a file writes it."""
        if not self.relative:
            return self.value
        return "baseline" if self.value == 1 else f"{self.value:g} * baseline"

    def accuracy(self, best: float | None) -> float | None:
        """The accuracy to reach, given the best of the baseline; None if that is needed and not known."""
        if not self.relative:
            return self.value
        return None if best is None else self.value * best


def read_targets(value: Any, free: bool = False) -> tuple[Target, ...]:
    """The targets that a file's `target` means: none, one, or a list of them.

    Args:
        value: None, a number, "baseline", "0.95 * baseline", or a list of these.
        free: whether numbers are of any metric, not only accuracies.

    Example:
        >>> [target.key for target in read_targets([0.7, "0.95*baseline"])]
        [0.7, '0.95 * baseline']
    """
    if value is None:
        return ()
    targets = tuple(_target(item, free) for item in (value if isinstance(value, list | tuple) else [value]))
    for target in targets:
        if targets.count(target) > 1:
            raise ValueError(f"target: {target.key} is given {targets.count(target)} times; each counts once")
    return targets


def _target(value: Any, free: bool) -> Target:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (0 < value <= 1 or (free and isfinite(value))):
        return Target(float(value))
    share = _SHARE.fullmatch(value) if isinstance(value, str) else None
    try:
        ratio = float(share[1] or 1) if share else 0.0
    except ValueError:
        ratio = 0.0
    if not 0 < ratio < float("inf"):
        raise ValueError(f"target: must be {_VALID}, got {str(value)[:80]!r}")
    return Target(ratio, relative=True)


def run_numbers(value: Any, info: ValidationInfo) -> Any:
    """The same as `numbers`, of any metric if the settings before it allow another one to judge the run."""
    return numbers(value, any(info.data.get(key) for key in _FREE))


def numbers(value: Any, free: bool = False) -> Any:
    """The `target` of a single run, which has no baseline: None, a number or a tuple of numbers.

    Args:
        value: as a file writes it.
        free: whether numbers are of any metric, not only accuracies.
    """
    targets = read_targets(value, free)
    for target in targets:
        if target.relative:
            raise ValueError(
                f"target: {target.key!r} is for comparisons, and a single run has no baseline; write a number such as "
                "0.7, or use undrift compare"
            )
    if isinstance(value, list | tuple):
        return tuple(target.value for target in targets) or None
    return targets[0].value if targets else None


def split_targets(value: Any) -> tuple[Any, tuple[Target, ...]]:
    """The `target` of a comparison as that of its runs, which has numbers only, and the targets that are relative.

    Example:
        >>> split_targets([0.7, "baseline"])
        ([0.7], (Target(value=1.0, relative=True),))
    """
    targets = read_targets(value, free=True)  # the run's own settings determine which numbers are possible
    relative = tuple(target for target in targets if target.relative)
    own = [target.value for target in targets if not target.relative]
    return (own or None if relative else value), relative
