"""What happens to a displacement before it leaves the client."""

from undrift.blocks.release.clip import NormClip, QuantileClip

__all__ = ["NormClip", "QuantileClip"]
