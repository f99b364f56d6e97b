"""Weights that a client knows by itself."""

from dataclasses import dataclass

from undrift.core.block import Aggregation
from undrift.core.types import Upload


@dataclass(frozen=True)
class ByExamples(Aggregation):
    """server:  delta = sum_i n_i delta_i / sum_i n_i, over the clients that took part"""

    def weigh(self, upload: Upload) -> float:
        """The number of examples."""
        return float(upload.examples)


@dataclass(frozen=True)
class Uniform(Aggregation):
    """server:  delta = 1/m sum_i delta_i"""

    plain = True

    def weigh(self, upload: Upload) -> float:
        """One each."""
        return 1.0
