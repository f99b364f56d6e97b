"""The block that says what filters act on."""

from dataclasses import dataclass

from torch import Generator

from undrift.blocks.spectral.filter import Filter
from undrift.core.block import Needs, Spectral
from undrift.core.vector import Vector
from undrift.core.view import Start, Step


@dataclass(frozen=True)
class Filters(Spectral[None, None, None, None, Generator]):
    """client:  offset <- perturbation(offset);   g <- gradient(g), of the data gradient only

    Args:
        perturbation: the filter on the offset at which the gradient is taken; None filters nothing.
        gradient: the filter on the data gradient; None filters nothing.
    """

    perturbation: Filter | None = None
    gradient: Filter | None = None

    def __post_init__(self) -> None:
        for name in ("perturbation", "gradient"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, Filter)):
                raise TypeError(f"Filters: {name} must be a filter such as high_pass(0.01), got {value!r}")

    @property
    def needs(self) -> Needs:
        """A perturbation, if there is a filter for its offset."""
        return Needs(filled=() if self.perturbation is None else ("perturbation",))

    def hint(self) -> str:
        """How to filter the gradient instead."""
        return (
            f"Add one, as perturbation=SAM(0.1); to filter the gradient write Filters(gradient={self.perturbation!r})"
        )

    def begin(self, sent: None, kept: None, start: Start) -> Generator:
        """The stream of filters that draw."""
        return start.random("filter")

    def filter_offset(self, offset: Vector, state: Generator, step: Step) -> Vector:
        """Filter the offset."""
        return offset if self.perturbation is None else self.perturbation(offset, step.layout, state)

    def filter_gradient(self, grad: Vector, state: Generator, step: Step) -> Vector:
        """Filter the data gradient."""
        return grad if self.gradient is None else self.gradient(grad, step.layout, state)
