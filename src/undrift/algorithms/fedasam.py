"""FedASAM."""

from undrift.blocks import ASAM
from undrift.core.method.algorithm import Algorithm


def fedasam(rho: float = 0.7, eta: float = 0.2) -> Algorithm:
    """FedASAM: FedSAM with a radius that scales with each weight.

    Use it in place of FedSAM where layers differ in scale: the radius follows the size of each weight. Not where local
    computation is the bottleneck: every step takes two gradients.

    The sharpness that SAM measures changes when a layer is rescaled; the adaptive radius does not.

        client:  offset = rho T^2 g1/||T g1||, T = |w| + eta on weights, 1 elsewhere;   g is taken at w + offset
        server:  FedAvg

    Args:
        rho: the radius in units of T; 0 gives FedAvg.
        eta: keeps T away from zero.

    Limits:
        rho = 0 gives FedAvg.

    Example:
        >>> fedasam()
        Algorithm(perturbation=ASAM(rho=0.7, eta=0.2))

    References:
        Caldarola et al., Improving generalization in federated learning by seeking flat minima, ECCV 2022.
    """
    return Algorithm(perturbation=ASAM(rho, eta))
