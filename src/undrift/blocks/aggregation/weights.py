"""Weights that a client knows by itself."""

from dataclasses import dataclass

from undrift.core import ByExamples, Summing, Upload

__all__ = ["ByExamples", "Uniform"]


@dataclass(frozen=True)
class Uniform(Summing):
    """server:  delta = 1/m sum_i delta_i"""

    equal_weights = True

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """One each."""
        return 1.0
