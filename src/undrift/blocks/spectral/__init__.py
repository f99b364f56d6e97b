"""Filters, and the block that says what they act on."""

from undrift.blocks.spectral.ablation import cap_norm, clip_coordinates, rescale
from undrift.blocks.spectral.detrend import gaussian, gd, lap_d, moving_average
from undrift.blocks.spectral.filter import Filter
from undrift.blocks.spectral.filters import Filters
from undrift.blocks.spectral.fourier import high_pass, low_pass, random_stop
from undrift.blocks.spectral.kernel import high_pass_2d

__all__ = [
    "Filter",
    "Filters",
    "cap_norm",
    "clip_coordinates",
    "gaussian",
    "gd",
    "high_pass",
    "high_pass_2d",
    "lap_d",
    "low_pass",
    "moving_average",
    "random_stop",
    "rescale",
]
