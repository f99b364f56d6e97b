"""FedLADA."""

from undrift.blocks import MixedAdamW, Uniform
from undrift.core.method.algorithm import Algorithm


def fedlada(gamma: float = 0.5) -> Algorithm:
    """FedLADA: Adam on the clients, mixed with the last global direction, from squares that the server averages.

    Use it where Adam on the clients drifts: the mixture amends every local step. Not where download is scarce: three
    models are sent, and the rate is Adam's.

    Adaptive steps overfit a client's own data faster than SGD does. A convex mixture with the last global direction
    amends them, and common squares keep the clients' scales alike.

        client:  m = 0, v the server's;   y <- y - lr ((1 - gamma) Adam's step + gamma d/K)
        server:  v <- 1/m sum_i v_i;   d <- -1/m sum_i delta_i / lr;   w <- w + 1/m sum_i delta_i

    Args:
        gamma: share of the global direction; 0 leaves Adam from averaged squares.

    Limits:
        gamma = 0 is AdamW on the clients from averaged squares.
        gamma = 1 repeats the last global displacement: nothing is learned.

    Example:
        >>> fedlada().local_optimizer.convex
        True

    References:
        Sun et al., Efficient federated learning via local adaptive amended optimizer with linear speedup, TPAMI 2023.

    Note:
        After later repositories that compare with it: decay is decoupled, as in AdamW, squares are not held at their
        maximum as in AMSGrad, and their default for gamma is used.
    """
    return Algorithm(local_optimizer=MixedAdamW(gamma, means=False, convex=True), aggregation=Uniform())
