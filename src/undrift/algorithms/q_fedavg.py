"""q-FedAvg."""

from undrift.blocks import QFair
from undrift.core.method.algorithm import Algorithm


def q_fedavg(q: float = 1.0) -> Algorithm:
    """q-FedAvg: clients with a larger loss count for more, and the step length follows from their losses.

    Use it for fairness between clients: those with a larger loss count for more, at one additional evaluation of a
    client's data per round. Not where a large loss may come from wrong labels: those clients would count most.

    An average serves the majority. Minimising the sum of F_i^(q+1) / (q+1) evens the losses out, the more the larger
    q; the denominator is a bound on the curvature of that objective, so the rate need not be tuned again for each q.

        client:  F_i = loss at w0 over all its data, before training, plus 1e-10
        server:  w <- w + sum_i F_i^q delta_i / sum_i (F_i^q + q F_i^(q-1) ||delta_i||^2 / lr)

    Args:
        q: how much more worse losses count; 0 gives FedAvg with equal weights. The paper's best values range from 0.001
            to 5.

    Limits:
        With q = 0 it is FedAvg with equal weights.
        With equal losses and equal norms of delta it moves along the mean of delta, by a part of it.

    Example:
        >>> q_fedavg()
        Algorithm(aggregation=QFair(q=1.0))

    References:
        Li et al., Fair resource allocation in federated learning, ICLR 2020.

    Note:
        The loss is that at the received model over all of a client's data; ports take one loss of the server for all
        clients, which cancels the weights, or the running loss of training. The constant L of the paper is one over
        the rate of the round, and v_i = -L delta_i: the two equations above are the paper's with both sides times lr.
        Examples do not count; the paper samples clients by examples instead, we sample uniformly. Steps shrink as q
        grows: compare at tuned rates. Sums resolve 2^-60, so keep F^q above 1e-9: with q = 5, losses above 0.02.
    """
    return Algorithm(aggregation=QFair(q))
