"""Terms added to the clients' loss."""

from undrift.blocks.objective.calibration import CalibratedLogits, RestrictedLogits
from undrift.blocks.objective.common import CommonRepresentation
from undrift.blocks.objective.contrast import Contrast
from undrift.blocks.objective.proximal import Proximal

__all__ = ["CalibratedLogits", "CommonRepresentation", "Contrast", "Proximal", "RestrictedLogits"]
