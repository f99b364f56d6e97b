"""How uploads are weighed or combined."""

from undrift.blocks.aggregation.age import ByAge, Mixing
from undrift.blocks.aggregation.agreement import ByAgreement
from undrift.blocks.aggregation.clip import MedianClip
from undrift.blocks.aggregation.combined import CombinedHeads
from undrift.blocks.aggregation.discrepancy import ByDiscrepancy
from undrift.blocks.aggregation.extrapolated import Extrapolated
from undrift.blocks.aggregation.fair import QFair
from undrift.blocks.aggregation.fisher import ByFisher
from undrift.blocks.aggregation.geometric import GeometricMedian
from undrift.blocks.aggregation.krum import Bulyan, Krum
from undrift.blocks.aggregation.last_loss import ByLastLoss, LastLossComplement
from undrift.blocks.aggregation.loss import ByLoss, LossComplement
from undrift.blocks.aggregation.median import CoordinateMedian, TrimmedMean
from undrift.blocks.aggregation.normalized import Normalized
from undrift.blocks.aggregation.product_norm import ByProductNorm
from undrift.blocks.aggregation.products import CorrectedFactor, LargestSingular
from undrift.blocks.aggregation.proxy import ByProxy
from undrift.blocks.aggregation.score import ByScore, Dampened
from undrift.blocks.aggregation.shrinking import LayerShrinking
from undrift.blocks.aggregation.weights import ByExamples, Uniform

__all__ = [
    "Bulyan",
    "ByAge",
    "ByAgreement",
    "ByDiscrepancy",
    "ByExamples",
    "ByFisher",
    "ByLastLoss",
    "ByLoss",
    "ByProductNorm",
    "ByProxy",
    "ByScore",
    "CombinedHeads",
    "CoordinateMedian",
    "CorrectedFactor",
    "Dampened",
    "Extrapolated",
    "GeometricMedian",
    "Krum",
    "LargestSingular",
    "LastLossComplement",
    "LayerShrinking",
    "LossComplement",
    "MedianClip",
    "Mixing",
    "Normalized",
    "QFair",
    "TrimmedMean",
    "Uniform",
]
