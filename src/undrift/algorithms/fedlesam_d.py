"""FedLESAM-D."""

from undrift.blocks import FedDyn, StaleGlobal, Uniform
from undrift.core.method.algorithm import Algorithm


def fedlesam_d(rho: float = 0.1, mu: float = 0.1) -> Algorithm:
    """FedLESAM-D: FedLESAM with the duals of FedDyn.

    Use it where FedDyn fits and a perturbation is wanted at one gradient per step and FedAvg's traffic. Not for
    cross-device settings or scarce memory: a client keeps two vectors of the model's size, which go stale.

    The global model's last movement, old minus new, points uphill on the global loss; perturbing along it costs no
    gradient, since it is known before the round.

        client:  offset = rho (w_old - w0)/||w_old - w0||, constant in the round
                 g <- g(w + offset) - h_i + mu (w - w0);   at the end h_i <- h_i - mu delta_i
        server:  FedDyn

    Args:
        rho: the radius; 0 gives FedDyn.
        mu: strength of the proximal term.

    Limits:
        rho = 0 gives FedDyn.

    Example:
        >>> fedlesam_d()
        Algorithm(perturbation=StaleGlobal(rho=0.1), drift=FedDyn(mu=0.1), aggregation=Uniform())

    References:
        Fan et al., Locally estimated global perturbations are better than local perturbations for federated
        sharpness-aware minimization, ICML 2024.

    Note:
        The released code spreads single coordinates of the movement over whole tensors; this is the paper's
        formula. The movement is that since the client's own last round; its first round is unperturbed.
    """
    return Algorithm(perturbation=StaleGlobal(rho), drift=FedDyn(mu), aggregation=Uniform())
