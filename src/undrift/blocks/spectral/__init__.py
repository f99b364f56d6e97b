"""Filters, the block that determines what they act on, and whitening by the inputs of layers."""

from undrift.blocks.spectral.ablation import cap_norm, clip_coordinates, rescale
from undrift.blocks.spectral.center import block_means, center
from undrift.blocks.spectral.detrend import gaussian, gd, lap_d, moving_average
from undrift.blocks.spectral.filter import Filter
from undrift.blocks.spectral.filters import Filters
from undrift.blocks.spectral.fourier import high_pass, low_pass, random_stop
from undrift.blocks.spectral.kernel import high_pass_2d
from undrift.blocks.spectral.whiten import Whiten

__all__ = [
    "Filter",
    "Filters",
    "Whiten",
    "block_means",
    "cap_norm",
    "center",
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
