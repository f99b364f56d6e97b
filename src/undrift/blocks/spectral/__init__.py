"""Filters, and the slot that says what they act on."""

from dataclasses import dataclass

from undrift.blocks.spectral.ablation import cap_norm, clip_coordinates, rescale
from undrift.blocks.spectral.detrend import gaussian, moving_average
from undrift.blocks.spectral.filter import Filter
from undrift.blocks.spectral.fourier import high_pass, low_pass, random_stop
from undrift.blocks.spectral.kernel import high_pass_2d
from undrift.core.block import Block

__all__ = [
    "Filter",
    "Spectral",
    "cap_norm",
    "clip_coordinates",
    "gaussian",
    "high_pass",
    "high_pass_2d",
    "low_pass",
    "moving_average",
    "random_stop",
    "rescale",
]


@dataclass(frozen=True)
class Spectral(Block):
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
                raise TypeError(f"Spectral: {name} must be a filter such as high_pass(0.01), got {value!r}")
