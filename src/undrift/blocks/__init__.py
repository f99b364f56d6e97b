"""The parts that methods are made of, by slot."""

from undrift.blocks.aggregation import ByExamples, CoordinateMedian, Uniform
from undrift.blocks.drift import FedDyn, Scaffold
from undrift.blocks.momentum import ServerMomentum
from undrift.blocks.objective import Proximal
from undrift.blocks.personalization import Private
from undrift.blocks.perturbation import ASAM, SAM, StaleGlobal
from undrift.blocks.server_optimizer import Average, HeavyBall
from undrift.blocks.spectral import (
    Filter,
    Spectral,
    cap_norm,
    clip_coordinates,
    gaussian,
    high_pass,
    high_pass_2d,
    low_pass,
    moving_average,
    random_stop,
    rescale,
)

__all__ = [
    "ASAM",
    "SAM",
    "Average",
    "ByExamples",
    "CoordinateMedian",
    "FedDyn",
    "Filter",
    "HeavyBall",
    "Private",
    "Proximal",
    "Scaffold",
    "ServerMomentum",
    "Spectral",
    "StaleGlobal",
    "Uniform",
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
