"""FedSAM."""

from undrift.blocks import SAM, Uniform
from undrift.core.method.algorithm import Algorithm


def fedsam(rho: float = 0.1) -> Algorithm:
    """FedSAM: clients seek flat minima by sharpness-aware steps.

    Use it where flat minima are wanted without client state or additional traffic. Not where local computation is the
    bottleneck: every step takes two gradients.

    Flat local minima stay low when the models are averaged.

        client:  offset = rho g1/||g1||, g1 the gradient at w;   g is taken at w + offset
        server:  w <- w + 1/m sum_i delta_i

    Args:
        rho: the radius; 0 gives FedAvg with equal weights.

    Limits:
        rho = 0 gives FedAvg with equal weights.

    Example:
        >>> fedsam(0.05)
        Algorithm(perturbation=SAM(rho=0.05, blend=1.0), aggregation=Uniform())

    References:
        Qu et al., Generalized federated learning via sharpness aware minimization, ICML 2022;
        Caldarola et al., Improving generalization in federated learning by seeking flat minima, ECCV 2022.
    """
    return Algorithm(perturbation=SAM(rho), aggregation=Uniform())
