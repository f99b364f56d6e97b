"""FedCM."""

from undrift.blocks import ServerMomentum, Uniform
from undrift.core.method.algorithm import Algorithm


def fedcm(a: float = 0.1) -> Algorithm:
    """FedCM: every local step is mixed with the last global direction.

    Use it for cross-device settings: momentum makes clients move together without client state, at a second model in
    the download. Not for short runs: the momentum starts at zero and builds up over about 1/a rounds.

    Momentum kept by the server and used by the clients makes stateless clients move together.

        client:  g <- a g + (1 - a) m
        server:  m <- -1/m sum_i delta_i / (steps_i lr);   w <- w + 1/m sum_i delta_i

    Args:
        a: share of the client's own gradient; 1 gives FedAvg with equal weights.

    Limits:
        a = 1 gives FedAvg with equal weights.
        With one full-batch step a round m is a moving average of gradients, with decay 1 - a.

    Example:
        >>> fedcm()
        Algorithm(momentum=ServerMomentum(a=0.1), aggregation=Uniform())

    References:
        Xu et al., FedCM: federated learning with client-level momentum, 2021.

    Note:
        Weight decay is added after the mixture and kept out of m, so that its effective strength stays wd; released
        code lets it grow to wd/a. In round 0, with m = 0, the model moves a times as far.
    """
    return Algorithm(momentum=ServerMomentum(a), aggregation=Uniform())
