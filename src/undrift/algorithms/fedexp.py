"""FedExP."""

from undrift.blocks import Extrapolated, LastTwo
from undrift.core.method.algorithm import Algorithm


def fedexp(eps: float = 1e-3, by_examples: bool = False) -> Algorithm:
    """FedExP: the more the clients' displacements differ, the further the server goes along their mean.

    Use it where clients disagree and FedAvg's steps are short: clients and traffic stay those of FedAvg, and there is
    no server rate to tune. Not where a single round decides: single models oscillate, and the mean of two is used.

    The mean of displacements that point in different directions is much shorter than they are. The step that would
    bring it nearest to all clients' optima, if those had a common one, is longer by a factor that the lengths give.

        server:  eta = max(1, mean_i ||delta_i||^2 / (2 (||mean_i delta_i||^2 + eps)))
                 x <- x + eta mean_i delta_i;   w = (x + x of the round before) / 2 is evaluated, x is broadcast

    Args:
        eps: what limits eta where the mean vanishes; infinity gives FedAvg with equal weights, its last two models
            averaged.
        by_examples: both means by examples, as in released code, instead of equally, as in the paper.

    Limits:
        With one client a round eta is 1: the mean of the last two models of FedAvg.
        eps = infinity gives the mean of the last two models of FedAvg with equal weights.

    Example:
        >>> fedexp()
        Algorithm(aggregation=Extrapolated(eps=0.001, by_examples=False), server_optimizer=LastTwo())

    References:
        Jhunjhunwala et al., FedExP: speeding up federated averaging via extrapolation, ICLR 2023.

    Note:
        eps is the paper's; released code multiplies it by the size of the cohort. The squares are taken from the
        displacements that arrive and travel as one exact sum. To extrapolate the mean of another method and evaluate
        its last model, write "scaffold + extrapolated".
    """
    return Algorithm(aggregation=Extrapolated(eps, by_examples), server_optimizer=LastTwo())
