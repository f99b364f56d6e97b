"""FedGAMMA."""

from undrift.blocks import SAM, Scaffold, Uniform
from undrift.core.method.algorithm import Algorithm


def fedgamma(rho: float = 0.01) -> Algorithm:
    """FedGAMMA: FedSAM with the control variates of SCAFFOLD. Also known as FedSAM-S.

    Use it where SCAFFOLD fits and computation is to spare: clients take part often and keep a control variate each. Not
    for cross-device settings or slow clients: variates go stale, and every step takes two gradients.

    The variates correct the drift of the sharpness-aware steps.

        client:  offset = rho g1/||g1||;   g <- g(w + offset) - c_i + c
        server:  SCAFFOLD

    Args:
        rho: the radius; 0 gives SCAFFOLD.

    Limits:
        rho = 0 gives SCAFFOLD.

    Example:
        >>> fedgamma()
        Algorithm(perturbation=SAM(rho=0.01, blend=1.0), drift=Scaffold(), aggregation=Uniform())

    References:
        Dai et al., FedGAMMA: federated learning with global sharpness-aware minimization, TNNLS 2023.

    Note:
        The perturbation comes from the raw gradient; c_i is the mean of the perturbed ones. Tables that list
        FedSAM-S and FedGAMMA as two methods list one method twice, with different radii.
    """
    return Algorithm(perturbation=SAM(rho), drift=Scaffold(), aggregation=Uniform())
