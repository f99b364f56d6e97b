"""Weights of a run's clients that override those of the method."""

from dataclasses import replace
from typing import Literal

from undrift.blocks import ByExamples, Uniform
from undrift.core.algorithm import Algorithm

Weights = Literal["paper", "examples", "uniform"]


def reweighted(algorithm: Algorithm, weights: Weights) -> Algorithm:
    """A method with other weights; raises if it has a rule of aggregation that is more than weights.

    Args:
        algorithm: the method.
        weights: "paper" keeps its own; "examples" and "uniform" override them.

    Example:
        >>> reweighted(Algorithm(aggregation=ByExamples()), "uniform").aggregation
        Uniform()
    """
    if weights == "paper":
        return algorithm
    if type(algorithm.aggregation) not in (ByExamples, Uniform):
        raise ValueError(
            f"weights: {weights} weights would replace the method's rule of aggregation, "
            f'{type(algorithm.aggregation).__name__}; set weights = "paper" for this method'
        )
    return replace(algorithm, aggregation=ByExamples() if weights == "examples" else Uniform())
