"""What happens to a displacement before it leaves the client."""

from undrift.blocks.release.clip import NormClip, QuantileClip
from undrift.blocks.release.private import PrivateQuantile, PrivateSum
from undrift.blocks.release.remembered import Remembered, Residual

__all__ = ["NormClip", "PrivateQuantile", "PrivateSum", "QuantileClip", "Remembered", "Residual"]
