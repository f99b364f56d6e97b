"""Where the gradient is taken."""

from undrift.blocks.perturbation.sam import ASAM, SAM
from undrift.blocks.perturbation.stale_global import StaleGlobal

__all__ = ["ASAM", "SAM", "StaleGlobal"]
