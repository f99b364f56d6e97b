"""CA2FL."""

from undrift.blocks import Average, Buffered, Remembered, Uniform
from undrift.core.method.algorithm import Algorithm


def ca2fl(size: int = 10, lr: float = 1.0, max_age: int | None = None) -> Algorithm:
    """CA2FL: FedBuff in which clients that have not reported count by their last displacement.

    Use it where fast and slow clients have different data: it follows the mean over all clients, not the one weighted
    by speed. Not where clients take part once only: what is remembered of them is then never used again.

    The mean h of the last displacements of all clients stands for those that are not in the buffer; the buffer adds
    what has changed. It is a correction on the server, so drift inside local training stays.

        client:  uploads delta_i - h_i;   then h_i <- delta_i
        server:  after K arrivals  v = 1/K sum_i (delta_i - h_i);   w <- w + lr (h + v);   h <- h + K/N v

    Args:
        size: K, arrivals per step. The cohort of the run is the number of clients in flight.
        lr: server learning rate.
        max_age: uploads older than so many steps are rejected; None takes all.

    Limits:
        With K = N and synchronous rounds h cancels: FedAvg with equal weights, up to rounding.

    Example:
        >>> ca2fl(5).release
        Remembered(spread=False)

    References:
        Wang et al., Tackling the data heterogeneity in asynchronous federated learning with cached update calibration,
        ICLR 2024.

    Note:
        The paper keeps h_i of every client on the server. Here the client keeps it and uploads the difference, so the
        server needs sums only and stores one vector. h_i starts at 0, which shortens the first steps.
    """
    return Algorithm(
        release=Remembered(),
        aggregation=Uniform(),
        server_optimizer=Average(lr),
        schedule=Buffered(size, max_age=max_age),
    )
