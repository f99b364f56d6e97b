"""The block that determines what filters act on."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator

from undrift.blocks.spectral.filter import Filter
from undrift.core.method.block import Perturbation, Spectral
from undrift.core.method.view import Start, Step
from undrift.core.model.flat_model import Layout, Vector


@dataclass
class Filtering:
    """The filter on gradients, the stream of filters that draw, and the memory of the filtered offset.

    Args:
        gradient: the filter on the data gradient; None filters nothing.
        random: the stream.
        offset: the memory, which every step uses again.
    """

    gradient: Filter | None
    random: Generator
    offset: Vector | None = None

    def apply_(self, grad: Vector, layout: Layout) -> Vector:
        """Filter a gradient in place.

        Args:
            grad: the gradient.
            layout: the names and shapes of its tensors.
        """
        if self.gradient is not None:
            self.gradient.apply_(grad, layout, self.random)
        return grad


@dataclass(frozen=True)
class Filters(Spectral[None, None, None, None, Filtering]):
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

    def refuses(self, others: Mapping[str, object]) -> str:
        """No perturbation, if there is a filter for its offset."""
        if self.perturbation is None or type(others["perturbation"]) is not Perturbation:
            return ""
        return (
            "needs a block in the perturbation slot; found none. Add one, as perturbation=SAM(0.1); to filter the "
            f"gradient write Filters(gradient={self.perturbation!r})"
        )

    def begin(self, sent: None, kept: None, start: Start) -> Filtering:
        """The stream of filters that draw."""
        return Filtering(self.gradient, start.random("filter"))

    def filter_offset(self, offset: Vector, state: Filtering, step: Step) -> Vector:
        """Filter a copy of the offset; the next step overwrites it."""
        if self.perturbation is None:
            return offset
        if state.offset is None:
            state.offset = torch.empty_like(offset)
        self.perturbation.apply_(state.offset.copy_(offset), step.layout, state.random)
        return state.offset

    def adjust(self, grad: Vector, state: Filtering, step: Step) -> Vector:
        """Filter the data gradient, in place."""
        return state.apply_(grad, step.layout)
