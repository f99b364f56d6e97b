"""Many runs: comparisons, tuning, statistics, advice."""

from undrift.studies.compare import Comparison, compare
from undrift.studies.statistics import to_markdown

__all__ = ["Comparison", "compare", "to_markdown"]
