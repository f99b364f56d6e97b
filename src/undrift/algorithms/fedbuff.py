"""FedBuff."""

from undrift.blocks import Average, Buffered, ByAge
from undrift.core.method.algorithm import Algorithm


def fedbuff(size: int = 10, lr: float = 1.0, a: float = 0.5, max_age: int | None = None) -> Algorithm:
    """FedBuff: the server steps after every few arrivals, and old uploads count less.

    Use it where clients differ much in speed and a synchronous round would wait for the slowest. Not where fast and
    slow clients have different data: it minimises the loss weighted by speed; a drift correction removes this bias.

    Clients train all the time, from the model that is current when they begin. The server collects their displacements
    in a buffer and steps when it is full. An upload's age tau is the number of steps since its client began.

        server:  after K arrivals  w <- w + lr / K sum_i (1 + tau_i)^-a delta_i

    Args:
        size: K, arrivals per step. The cohort of the run is the number of clients in flight.
        lr: server learning rate.
        a: how fast the weight falls with age; a small a makes all weights equal.
        max_age: uploads older than so many steps are rejected; None takes all.

    Limits:
        With K = the cohort and clients that begin after the step only, it is FedAvg with equal weights, bit for bit:
        by-age + buffered(10, restart='flush').
        With K = 1 it is asynchronous SGD with weights by age.

    Example:
        >>> fedbuff(5).schedule
        Buffered(concurrency=None, max_age=None, size=5, restart='arrival')

    References:
        Nguyen et al., Federated learning with buffered asynchronous aggregation, AISTATS 2022.

    Note:
        The sum is divided by K and not by the sum of the weights. Age is counted from the version at download, a fresh
        upload has age 0 and weight 1. Other implementations differ: weights of at most 1/2, client models averaged in
        place of displacements, ages counted in arrivals, no division by K.
    """
    return Algorithm(
        aggregation=ByAge("polynomial", a=a), server_optimizer=Average(lr), schedule=Buffered(size, max_age=max_age)
    )
