"""Keys of run files whose values may differ between clients and rounds: see `undrift.core.local.amounts`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from undrift.core.local.amounts import check_population
from undrift.core.local.settings import Local
from undrift.core.method.selection import Selection, check_cohort
from undrift.core.tasks.participation import pinned

Availability: TypeAlias = Annotated[str, AfterValidator(pinned)]
"""A trace by its file, whose hash is added, or by reference."""

Sampling: TypeAlias = Literal["uniform", "examples"] | tuple[float, ...]
"""How a cohort is drawn."""


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
        check_cohort(selection, cohort if isinstance(cohort, int) else None)
    if clients is not None:
        local.check_population(clients)
        check_population("sampling", sampling, clients)
