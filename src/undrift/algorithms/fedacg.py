"""FedACG."""

from undrift.blocks import Ahead, Proximal, Uniform
from undrift.core.method.algorithm import Algorithm


def fedacg(lam: float = 0.85, beta: float = 0.01) -> Algorithm:
    """FedACG: clients start where the server's momentum will have moved the model, and stay near that point.

    Use it as FedAvgM whose momentum clients anticipate: no state on clients and no more traffic. Not against a bias of
    the fixed point: on clients of different curvature it ends where FedAvg ends.

    Momentum on the server alone lets clients train at a point that the model will have left. Here they get the point
    ahead, and their displacements correct the momentum there, as in Nesterov's method.

        client:  from s = w - lam v:  g <- g + beta (y - s);   delta_i = y - s
        server:  v <- lam v - 1/m sum_i delta_i;   w <- w - v

    Args:
        lam: share of the momentum that is kept and added ahead; 0 gives FedProx with equal weights.
        beta: strength of the pull towards s; 0 switches it off.

    Limits:
        lam = 0 gives FedProx with equal weights; with beta = 0 FedAvg with equal weights.
        With one full-batch step a round and beta = 0 it is Nesterov's method on the mean loss.

    Example:
        >>> fedacg()
        Algorithm(objective=Proximal(mu=0.01), aggregation=Uniform(), server_optimizer=Ahead(lam=0.85))

    References:
        Kim et al., Communication-efficient federated learning with accelerated client gradient, CVPR 2024.

    Note:
        One model is sent, s, from which the displacement is measured; the model evaluated is w. A script that compares
        it with later methods takes the pull out of the gradient by mistake, which is beta = 0 here.
    """
    return Algorithm(objective=Proximal(beta), aggregation=Uniform(), server_optimizer=Ahead(lam))
