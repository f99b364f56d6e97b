"""FedAvgM."""

from undrift.blocks import HeavyBall
from undrift.core.method.algorithm import Algorithm


def fedavgm(beta: float = 0.9, lr: float = 1.0, nesterov: bool = False) -> Algorithm:
    """FedAvgM: FedAvg with heavy-ball momentum on the server.

    Use it where small or skewed cohorts make the global model oscillate from round to round: clients and traffic stay
    those of FedAvg. Not against drift within a round, which stays as it is, nor without tuning lr: beta = 0.9 makes
    steps up to ten times as long.

    Averages of skewed cohorts oscillate; momentum smooths them over the rounds.

        server:  v <- beta v - sum_i n_i delta_i / sum_i n_i;   w <- w - lr v

    Args:
        beta: momentum; 0 gives FedAvg with server rate lr.
        lr: server learning rate; scale it by 1 - beta for steps as long as FedAvg's.
        nesterov: whether the momentum is Nesterov's.

    Limits:
        beta = 0 and lr = 1 gives FedAvg.

    Example:
        >>> fedavgm()
        Algorithm(server_optimizer=HeavyBall(beta=0.9, lr=1.0, nesterov=False))

    References:
        Hsu et al., Measuring the effects of non-identical data distribution for federated visual classification, 2019.

    Note:
        Heavy-ball, Nesterov and moving-average forms all have this name; their step lengths differ up to tenfold.
    """
    return Algorithm(server_optimizer=HeavyBall(beta, lr, nesterov))
