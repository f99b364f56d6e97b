"""FedFa."""

from undrift.blocks import Asynchronous, Mixing, Queue
from undrift.core.method.algorithm import Algorithm


def fedfa(size: int = 5, max_age: int | None = None) -> Algorithm:
    """FedFa: the model is the mean of the models that arrived last.

    Use it to step at every arrival with the calm of a buffer. Not where memory is short: the server keeps as many
    models as the queue is long; nor where fast and slow clients have different data, since fast ones fill the queue.

    A client that reports takes the place of the oldest model in a queue and begins again at once.

        server:  at each arrival the queue of K models drops its oldest and takes w_i;   w <- mean of the queue

    Args:
        size: K, the length of the queue.
        max_age: models older than so many steps are rejected; None takes all.

    Limits:
        With K = 1 the model is that of the client that reported last, as fedasync(alpha=1, rule='constant', mu=0).

    Example:
        >>> fedfa(3).server_optimizer
        Queue(size=3)

    References:
        Xu et al., FedFa: A fully asynchronous training paradigm for federated learning, IJCAI 2024.

    Note:
        At first the queue holds the first model K times, so the first K arrivals move the model by 1/K each; the paper
        waits for them. Its form with displacements, which adds the newest and takes the oldest away, is not here.
    """
    return Algorithm(
        aggregation=Mixing("constant", alpha=1.0), server_optimizer=Queue(size), schedule=Asynchronous(max_age=max_age)
    )
