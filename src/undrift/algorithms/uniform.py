"""FedAvg with equal weights."""

from undrift.blocks import Uniform
from undrift.core.method.algorithm import Algorithm


def uniform() -> Algorithm:
    """FedAvg with equal weights: every client of the cohort counts the same.

    Use it as the baseline of methods that average clients equally, or where every client should count the same. Not
    where sizes differ and the mean over examples is the objective: small clients count as much as large ones.

    The base of most drift corrections, whose objective is the mean over clients. With equal sizes it is FedAvg.

        server:  w <- w + 1/m sum_i delta_i

    Limits:
        With equal numbers of examples it is FedAvg.

    Example:
        >>> uniform()
        Algorithm(aggregation=Uniform())

    References:
        McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.
    """
    return Algorithm(aggregation=Uniform())
