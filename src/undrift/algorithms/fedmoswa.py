"""FedMoSWA."""

from undrift.blocks import Average, FallingRate, FollowedVariates, Uniform
from undrift.core.method.algorithm import Algorithm


def fedmoswa(rho: float = 0.1, alpha: float = 1.5, gamma: float = 0.2) -> Algorithm:
    """FedMoSWA: FedSWA with control variates, of which the server's is a moving average over the cohorts.

    Use it as SCAFFOLD where cohorts are small: the server's variate forgets old cohorts instead of adding up all
    clients' changes. Not where upload is scarce: variates travel, two models in each direction.

    SCAFFOLD's global variate changes by 1/N for each client, so it lags when few of many take part; a moving average of
    the cohorts' variates is momentum in its place.

        client:  g <- g - c_i + c;   y <- y - lr (1 - (1 - rho) k/K) g;   at the end c_i <- mean_k g_k, uncorrected
        server:  c <- c + gamma (1/m sum_i c_i - c);   w <- w + alpha 1/m sum_i delta_i

    Args:
        rho: share of the rate towards which it falls in a round; 1 keeps it constant.
        alpha: server learning rate; 1 gives the mean of the clients' models.
        gamma: how far the server's variate follows a cohort.

    Limits:
        With variates kept at zero it is FedSWA.
        With all clients in a round, rho = alpha = gamma = 1 gives SCAFFOLD.

    Example:
        >>> fedmoswa().drift
        FollowedVariates(gamma=0.2)

    References:
        Liu et al., Improving generalization in federated learning with highly heterogeneous data via momentum-based
        stochastic controlled weight averaging, ICML 2025.

    Note:
        After the paper. Released code has gamma = 0.4, takes c = 1/m sum_i c_i in the first round, and under this name
        runs a client without the falling rate. On quadratics it is as unbiased as SCAFFOLD, and slower.
    """
    return Algorithm(
        drift=FollowedVariates(gamma),
        local_optimizer=FallingRate(rho),
        aggregation=Uniform(),
        server_optimizer=Average(alpha),
    )
