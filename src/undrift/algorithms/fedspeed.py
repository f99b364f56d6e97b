"""FedSpeed."""

from undrift.blocks import SAM, FedDyn, Uniform
from undrift.core.method.algorithm import Algorithm


def fedspeed(rho: float = 0.1, mu: float = 0.1, blend: float = 1.0) -> Algorithm:
    """FedSpeed: sharpness-aware steps inside FedDyn. With blend 1 also known as FedSAM-D.

    Use it where FedDyn fits and computation is to spare: clients take part often and keep a dual each, and traffic is
    FedAvg's. Not for cross-device settings or slow clients: duals go stale, and every step takes two gradients.

    The dual removes the bias of the proximal term, the perturbation seeks flat minima; long local training stays
    stable.

        client:  g <- (1 - blend) g(w) + blend g(w + rho g(w)/||g(w)||) - h_i + mu (w - w0);   h_i <- h_i - mu delta_i
        server:  FedDyn

    Args:
        rho: the radius; 0 gives FedDyn.
        mu: strength of the proximal term.
        blend: share of the perturbed gradient; 0 gives FedDyn.

    Limits:
        rho = 0 or blend = 0 gives FedDyn.

    Example:
        >>> fedspeed()
        Algorithm(perturbation=SAM(rho=0.1, blend=1.0), drift=FedDyn(mu=0.1), aggregation=Uniform())

    References:
        Sun et al., FedSpeed: larger local interval, less communication round, and higher generalization accuracy,
        ICLR 2023.

    Note:
        The server rule is that of the authors' code. The paper averages w_i - h_i/mu over the cohort only: the same
        under full participation, unstable otherwise.
    """
    return Algorithm(perturbation=SAM(rho, blend), drift=FedDyn(mu), aggregation=Uniform())
