"""FedSWA."""

from undrift.blocks import Average, FallingRate, Uniform
from undrift.core.method.algorithm import Algorithm


def fedswa(rho: float = 0.1, alpha: float = 1.5) -> Algorithm:
    """FedSWA: a learning rate that falls inside every round, and a server that goes beyond the mean.

    Use it where FedAvg ends in sharp minima: it costs no traffic, state or gradients. Not with few local steps: with
    one there is nothing to fall, and what is left is a longer step of the server.

    Stochastic weight averaging collects models at the ends of cycles of the learning rate. A round is such a cycle, and
    the server's extrapolation along the mean of the ends stands for the averaging.

        client:  y <- y - lr (1 - (1 - rho) k/K) g at step k = 0, 1, ... of K
        server:  w <- w + alpha 1/m sum_i delta_i

    Args:
        rho: share of the rate towards which it falls; 1 keeps it constant.
        alpha: server learning rate; 1 gives the mean of the clients' models.

    Limits:
        rho = alpha = 1 gives FedAvg with equal weights.

    Example:
        >>> fedswa()
        Algorithm(local_optimizer=FallingRate(rho=0.1), aggregation=Uniform(), server_optimizer=Average(lr=1.5))

    References:
        Liu et al., Improving generalization in federated learning with highly heterogeneous data via momentum-based
        stochastic controlled weight averaging, ICML 2025.

    Note:
        After the paper. Released code starts at twice the rate, falls to zero, has alpha = 1, and trains whole epochs
        where the methods beside it stop after K steps. Here every method takes Local's number of steps.
    """
    return Algorithm(local_optimizer=FallingRate(rho), aggregation=Uniform(), server_optimizer=Average(alpha))
