"""Keys of run files whose values may differ between clients and rounds: see `undrift.core.local.amounts`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from undrift.core.local.amounts import check_population, checked, portable
from undrift.core.local.settings import Local
from undrift.core.method.selection import Selection
from undrift.core.tasks.participation import pinned

WorkAmount: TypeAlias = int | float | str | tuple[int | float, ...]
"""An amount as a run file contains it."""

Availability: TypeAlias = Annotated[str, AfterValidator(pinned)]
"""A trace by its file, whose hash is added, or by reference."""

Sampling: TypeAlias = Literal["uniform", "examples"] | tuple[float, ...]
"""How a cohort is drawn."""


def amount_of(name: str, most: float, *, whole: bool = False) -> BeforeValidator:
    """Validates an amount; None stays None, and a function becomes its reference.

    Args:
        name: the key, for errors.
        most: the largest number allowed.
        whole: whether only whole numbers are allowed.
    """

    def validate(value: Any) -> Any:
        if value is None:
            return None
        found = portable(name, checked(name, value, whole=whole))
        numbers = found if isinstance(found, tuple) else () if isinstance(found, str) else (found,)
        if any(x > most for x in numbers):
            raise ValueError(f"{name} must be at most {most:g}, got {max(numbers):g}")
        return found

    return BeforeValidator(validate)


def _axes(grid: Any) -> Any:
    """A grid whose values are numbers; what is no mapping is left to pydantic."""
    for name, values in grid.items() if isinstance(grid, Mapping) else ():
        if not isinstance(values, list | tuple) or not all(isinstance(x, int | float) for x in values):
            raise ValueError(
                f"grid.{name}: values must be a list of numbers, as in lr = [0.05, 0.1], got {str(values)[:80]!r}"
            )
    return grid


Axes: TypeAlias = Annotated[dict[str, tuple[int | float, ...]], BeforeValidator(_axes)]
"""The axes of a grid, each with its numbers."""


def check_participation(
    selection: Selection[Any, Any, Any, Any, Any],
    local: Local,
    clients: int | None,
    cohort: float | None,
    probability: float | None,
    sampling: Sampling,
) -> None:
    """Raise if lists do not fit the number of clients, or if a cohort of the given size cannot be drawn or selected.

    Args:
        selection: the method's.
        local: the settings of local training.
        clients: how many there are; None if not known yet.
        cohort: their number in a round, or a ratio that is not a number yet.
        probability: that of taking part, instead of a cohort.
        sampling: how a cohort is drawn.
    """
    if probability is not None and sampling != "uniform":
        raise ValueError("sampling: weights need a cohort of fixed size; give cohort instead of probability")
    if isinstance(cohort, int) or probability is not None:
        selection.check_size(cohort if isinstance(cohort, int) else None)
    if clients is not None:
        local.check_population(clients)
        check_population("sampling", sampling, clients)
