"""FedLESAM."""

from undrift.blocks import StaleGlobal, Uniform
from undrift.core.method.algorithm import Algorithm


def fedlesam(rho: float = 0.1) -> Algorithm:
    """FedLESAM: perturb along the global movement, at one gradient per step.

    Use it where each client takes part often and FedSAM's second gradient is too expensive. Not for cross-device
    settings: a client keeps the model it last received, and its first round is FedAvg's.

    The global model's last movement, old minus new, points uphill on the global loss; perturbing along it costs no
    gradient, since it is known before the round.

        client:  offset = rho (w_old - w0)/||w_old - w0||, constant in the round;   g is taken at w + offset
        server:  w <- w + 1/m sum_i delta_i

    Args:
        rho: the radius; 0 gives FedAvg with equal weights.

    Limits:
        rho = 0 gives FedAvg with equal weights.
        A client's first round is that of FedAvg.

    Example:
        >>> fedlesam()
        Algorithm(perturbation=StaleGlobal(rho=0.1), aggregation=Uniform())

    References:
        Fan et al., Locally estimated global perturbations are better than local perturbations for federated
        sharpness-aware minimization, ICML 2024.

    Note:
        The released code spreads single coordinates of the movement over whole tensors; this is the paper's
        formula. The movement is that since the client's own last round; its first round is unperturbed.
    """
    return Algorithm(perturbation=StaleGlobal(rho), aggregation=Uniform())
