"""Where the gradient is taken."""

from undrift.blocks.perturbation.consensus import Consensus
from undrift.blocks.perturbation.first_gradients import FirstGradients
from undrift.blocks.perturbation.fsa import FSA
from undrift.blocks.perturbation.momentum_path import MomentumPath
from undrift.blocks.perturbation.moreau import Moreau
from undrift.blocks.perturbation.others_path import OthersPath
from undrift.blocks.perturbation.proximal_ascent import ProximalAscent
from undrift.blocks.perturbation.sam import ASAM, SAM
from undrift.blocks.perturbation.scored_sam import ScoredSAM
from undrift.blocks.perturbation.stale_global import StaleGlobal
from undrift.blocks.perturbation.warm_sam import WarmSAM

__all__ = [
    "ASAM",
    "FSA",
    "SAM",
    "Consensus",
    "FirstGradients",
    "MomentumPath",
    "Moreau",
    "OthersPath",
    "ProximalAscent",
    "ScoredSAM",
    "StaleGlobal",
    "WarmSAM",
]
