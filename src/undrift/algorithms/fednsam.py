"""FedNSAM."""

from undrift.blocks import SAM, Ahead, Uniform
from undrift.core.method.algorithm import Algorithm


def fednsam(rho: float = 0.05, lam: float = 0.85) -> Algorithm:
    """FedNSAM: sharpness-aware steps from the point to which the server's momentum will have moved the model.

    Use it where FedSAM helps and rounds are few: the momentum of the server is the only addition, without traffic. Not
    where computation is scarce: every step takes two gradients.

    Each client's flat region differs from the global one. With the momentum ahead, clients seek flatness around the
    point where the global model will be.

        client:  from s = w - lam v:  y <- y - lr g(y + rho g(y)/||g(y)||);   delta_i = y - s
        server:  v <- lam v - 1/m sum_i delta_i;   w <- w - v

    Args:
        rho: the radius; 0 gives FedACG without its pull.
        lam: share of the momentum that is kept and added ahead; 0 gives FedSAM.

    Limits:
        lam = 0 gives FedSAM.
        rho = 0 gives FedACG with beta = 0.

    Example:
        >>> fednsam().server_optimizer
        Ahead(lam=0.85)

    References:
        Liu et al., FedNSAM: consistency of local and global flatness for federated learning, 2026.

    Note:
        Released code overwrites rho and the momentum given on its command line by 0.05 and 0.85, the defaults here.
    """
    return Algorithm(perturbation=SAM(rho), aggregation=Uniform(), server_optimizer=Ahead(lam))
