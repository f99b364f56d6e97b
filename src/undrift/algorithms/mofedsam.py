"""MoFedSAM."""

from undrift.blocks import SAM, ServerMomentum, Uniform
from undrift.core.method.algorithm import Algorithm


def mofedsam(rho: float = 0.1, a: float = 0.1) -> Algorithm:
    """MoFedSAM: FedSAM with the momentum of FedCM.

    Use it for cross-device settings with computation to spare: flat minima and a common direction without client state.
    Not for short runs or a limited download: momentum builds up over about 1/a rounds, and a client downloads two
    models.

    Sharpness-aware steps that all clients take in a common direction.

        client:  offset = rho g1/||g1||;   g <- a g(w + offset) + (1 - a) m
        server:  m <- -1/m sum_i delta_i / (steps_i lr);   w <- w + 1/m sum_i delta_i

    Args:
        rho: the radius; 0 gives FedCM.
        a: share of the client's own gradient; 1 gives FedSAM.

    Limits:
        rho = 0 gives FedCM.
        a = 1 gives FedSAM.

    Example:
        >>> mofedsam()
        Algorithm(perturbation=SAM(rho=0.1, blend=1.0), momentum=ServerMomentum(a=0.1), aggregation=Uniform())

    References:
        Qu et al., Generalized federated learning via sharpness aware minimization, ICML 2022.

    Note:
        The momentum does not enter the perturbation. The steps and the rate in m are each client's own and this
        round's. The momentum starts at zero and fills over about 1/a rounds, and the radius slows it more while
        gradients are small: in the smoke benchmark 18 % after 10 rounds and 62 % after 30, where FedAvg has 63 % after
        10; rho = 0.01 gives 62 % after 10, a = 0.5 61 %.
    """
    return Algorithm(perturbation=SAM(rho), momentum=ServerMomentum(a), aggregation=Uniform())
