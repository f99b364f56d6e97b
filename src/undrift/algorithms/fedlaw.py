"""FedLAW."""

from undrift.blocks import ByProxy
from undrift.core.method.algorithm import Algorithm


def fedlaw(epochs: int = 20, lr: float = 0.01, form: str = "exp", shrink: bool = True) -> Algorithm:
    """FedLAW: the server learns the weights and a shrink factor on a small proxy set.

    Use it where the server has a small set of representative labelled examples. Not without such data, with secure
    aggregation or on Flower: the server trains on them and holds every upload of a round.

    Weights by size need not be the best, and they need not sum to one: a smaller sum regularises. Both are learned in
    every round on a few balanced examples at the server.

        server:  model(T, s) = e^s sum_i softmax(T)_i (w + delta_i),   from T_i = log(n_i / sum_j n_j), s = 0
                 one step of Adam for each batch of proxy data on the loss of model(T, s), betas (0.5, 0.999)
                 w <- model(T, s)

    Args:
        epochs: passes over the proxy data in a round; 0 gives FedAvg.
        lr: rate of Adam, halved after every 20 epochs.
        form: "exp", or "quad" with T_i^2 / sum_j T_j^2 and s^2, from equal weights.
        shrink: whether s is learned; False makes the weights sum to one.

    Limits:
        epochs = 0 gives FedAvg ("exp") or equal weights ("quad").
        shrink = False and one client give that client's model.

    Example:
        >>> fedlaw()
        Algorithm(aggregation=ByProxy(epochs=20, lr=0.01, form='exp', shrink=True))

    References:
        Li et al., Revisiting weighted aggregation in federated learning with neural networks, ICML 2023.

    Note:
        The task provides the proxy data with its method proxy(). The paper takes two percent of the test set; use
        training data that no client has, or report that you did not. The released code lets proxy batches change the
        running statistics of BatchNorm and keeps the clients' momentum across rounds; here neither happens, and running
        statistics are averaged by examples. The variant that averages weights along the way (SWA) is not implemented.
        Simulations only: a Flower server has no task.
    """
    return Algorithm(aggregation=ByProxy(epochs, lr, form, shrink))
