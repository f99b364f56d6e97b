"""ACE."""

from undrift.blocks import Asynchronous, Average, Remembered, Uniform
from undrift.core.method.algorithm import Algorithm


def ace(lr: float = 0.1, max_age: int | None = None) -> Algorithm:
    """ACE: at every arrival the server steps by the mean of the last displacements of all clients.

    Use it to step at every arrival without a bias towards fast clients. Not with lr = 1: each arrival is a step of the
    mean over all clients, so lr is about the cohort's share of FedBuff's.

    All clients take part in every step, those that have not reported by their last displacement, however old.

        client:  uploads delta_j - u_j;   then u_j <- delta_j
        server:  at each arrival  u <- u + (delta_j - u_j) / N;   w <- w + lr u

    Args:
        lr: server learning rate.
        max_age: uploads older than so many steps are rejected; None takes all.

    Limits:
        With one client it is SGD with the displacement as the step.

    Example:
        >>> ace().release
        Remembered(spread=True)

    References:
        Chang et al., 2025, arXiv 2511.19066.

    Note:
        The paper caches u_j of every client on the server; here the client keeps it, as in ca2fl. Its variant that
        leaves old caches out of the mean is aced.
    """
    return Algorithm(
        release=Remembered(spread=True),
        aggregation=Uniform(),
        server_optimizer=Average(lr),
        schedule=Asynchronous(max_age=max_age),
    )
