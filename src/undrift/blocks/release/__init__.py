"""What happens to a displacement before it leaves the client."""

from undrift.blocks.release.clip import NormClip, QuantileClip
from undrift.blocks.release.compressed import Quantized, TopK
from undrift.blocks.release.cross_products import CrossProducts
from undrift.blocks.release.private import PrivateQuantile, PrivateSum
from undrift.blocks.release.recent import Recent
from undrift.blocks.release.remembered import Remembered, Residual
from undrift.blocks.release.rotated import Rotated
from undrift.blocks.release.scaled_cores import ScaledCores
from undrift.blocks.release.shares import PrivateShares

__all__ = [
    "CrossProducts",
    "NormClip",
    "PrivateQuantile",
    "PrivateShares",
    "PrivateSum",
    "QuantileClip",
    "Quantized",
    "Recent",
    "Remembered",
    "Residual",
    "Rotated",
    "ScaledCores",
    "TopK",
]
