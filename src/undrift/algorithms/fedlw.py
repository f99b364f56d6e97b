"""FedLW."""

from undrift.blocks import ByLoss, LossComplement
from undrift.core.method.algorithm import Algorithm


def fedlw(rule: str = "inverse", temperature: float = 1.0) -> Algorithm:
    """FedLW: clients with a lower training loss count for more.

    Use it where some clients' data may be bad and a high training loss reveals them. Not under strong label skew: a low
    loss then often means few classes, and those clients count most.

    The loss measures how good a local model is, regardless of the number of its examples or the speed of
    its device.

        client:  L_i = mean loss over all examples and epochs of the round, each measured before its step
        server:  w <- w + sum_i a_i delta_i / sum_i a_i,   a_i = 1 / (L_i + 1e-8)

    Args:
        rule: "inverse"; "softmax" takes a_i = exp(-L_i / temperature), "complement" the weights of FedNolowe.
        temperature: the temperature of the softmax; a large one gives equal weights.

    Limits:
        With equal losses it is FedAvg with equal weights.
        Scaling all losses does not change the weights with "inverse" and "complement".
        With two clients a round "inverse" is FedNolowe.

    Example:
        >>> fedlw()
        Algorithm(aggregation=ByLoss(rule='inverse', temperature=1.0))

    References:
        Yao et al., A loss-based weighted aggregation method for federated learning with heterogeneous computing
        resources, APNet 2025.

    Note:
        The formula is ours: only the abstract was available, which gives a lower loss a higher weight. The
        inverse has no parameter, does not depend on the scale of the loss and needs only sums. Under label skew a
        low loss often means few classes, so expect a bias: published comparisons have it below FedAvg there.
    """
    return Algorithm(aggregation=LossComplement() if rule == "complement" else ByLoss(rule, temperature))
