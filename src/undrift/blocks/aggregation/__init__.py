"""How uploads are weighed or combined."""

from undrift.blocks.aggregation.median import CoordinateMedian
from undrift.blocks.aggregation.weights import ByExamples, Uniform

__all__ = ["ByExamples", "CoordinateMedian", "Uniform"]
