"""FedLESAM-S."""

from undrift.blocks import Scaffold, StaleGlobal, Uniform
from undrift.core.method.algorithm import Algorithm


def fedlesam_s(rho: float = 0.1) -> Algorithm:
    """FedLESAM-S: FedLESAM with the control variates of SCAFFOLD.

    Use it where SCAFFOLD fits and a perturbation is wanted at one gradient per step. Not for cross-device settings or
    scarce memory: a client keeps two vectors of the model's size, which go stale, and downloads two.

    The global model's last movement, old minus new, points uphill on the global loss; perturbing along it costs no
    gradient, since it is known before the round.

        client:  offset = rho (w_old - w0)/||w_old - w0||, constant in the round;   g <- g(w + offset) - c_i + c
        server:  SCAFFOLD

    Args:
        rho: the radius; 0 gives SCAFFOLD.

    Limits:
        rho = 0 gives SCAFFOLD.

    Example:
        >>> fedlesam_s()
        Algorithm(perturbation=StaleGlobal(rho=0.1), drift=Scaffold(), aggregation=Uniform())

    References:
        Fan et al., Locally estimated global perturbations are better than local perturbations for federated
        sharpness-aware minimization, ICML 2024.

    Note:
        The released code spreads single coordinates of the movement over whole tensors; this is the paper's
        formula. The movement is that since the client's own last round; its first round is unperturbed.
    """
    return Algorithm(perturbation=StaleGlobal(rho), drift=Scaffold(), aggregation=Uniform())
