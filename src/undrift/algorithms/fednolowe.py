"""FedNolowe."""

from undrift.blocks import LossComplement
from undrift.core.method.algorithm import Algorithm


def fednolowe() -> Algorithm:
    """FedNolowe: weights that fall linearly with a client's share of the cohort's training loss.

    Use it as a milder FedLW, in small cohorts of which some clients may have bad data. Not for large cohorts, where its
    weights are nearly equal, nor under strong label skew, where a low loss often means few classes.

    Milder than the inverse loss: no client gets more than 1 / (m - 1), and in large cohorts the weights are nearly
    equal regardless of the losses.

        client:  L_i = mean loss over all examples and epochs of the round, each measured before its step
        server:  S = sum_i L_i;   w <- w + sum_i (S - L_i) delta_i / ((m - 1) S)

    Limits:
        With equal losses it is FedAvg with equal weights.
        With two clients a round it is FedLW.
        With one client, or losses that are all zero, weights are equal.

    Example:
        >>> fednolowe()
        Algorithm(aggregation=LossComplement())

    References:
        Le et al., FedNolowe: a normalized loss-based weighted aggregation strategy for robust federated learning in
        heterogeneous environments, PLOS ONE 2025.

    Note:
        The server needs two sums, with weights 1 and L_i, not each upload separately. The released code keeps
        a client's optimizer, momentum included, over all rounds; here it is fresh in every round. It divides by zero
        for one client; here that client counts. Losses below zero are rejected. Running statistics are averaged with
        equal weights.
    """
    return Algorithm(aggregation=LossComplement())
