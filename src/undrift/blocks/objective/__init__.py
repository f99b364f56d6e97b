"""Terms added to the clients' loss."""

from undrift.blocks.objective.calibration import BalancedLogits, BalancedSimplex, CalibratedLogits, RestrictedLogits
from undrift.blocks.objective.common import CommonRepresentation
from undrift.blocks.objective.contrast import Contrast
from undrift.blocks.objective.distillation import NotTrue, VacantClasses
from undrift.blocks.objective.features import Decorrelated, SpreadOut
from undrift.blocks.objective.fixed_corners import FixedCorners
from undrift.blocks.objective.prototypes import TowardsPrototypes
from undrift.blocks.objective.proximal import Proximal

__all__ = [
    "BalancedLogits",
    "BalancedSimplex",
    "CalibratedLogits",
    "CommonRepresentation",
    "Contrast",
    "Decorrelated",
    "FixedCorners",
    "NotTrue",
    "Proximal",
    "RestrictedLogits",
    "SpreadOut",
    "TowardsPrototypes",
    "VacantClasses",
]
