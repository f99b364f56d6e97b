"""FedDyn."""

from undrift.blocks import FedDyn, Uniform
from undrift.core.method.algorithm import Algorithm


def feddyn(mu: float = 0.1) -> Algorithm:
    """FedDyn: a dual on each client makes local optima agree with the global one.

    Use it where each client takes part often and traffic must stay that of FedAvg: it keeps one dual per client. Not
    for cross-device settings: the duals of clients that are seen rarely go stale, and the server's step contains their
    mean.

    With a plain proximal term the clients' stationary points never coincide; the dual shifts each client's loss until
    they do.

        client:  g <- g - h_i + mu (w - w0);   at the end h_i <- h_i - mu delta_i
        server:  h <- h - mu/N sum_i delta_i;  w <- w + 1/m sum_i delta_i - h/mu

    Args:
        mu: strength of the proximal term, alpha in the paper.

    Limits:
        Round 0, in which all duals are zero, has the local models of FedProx with the same mu.
        h is the mean of all clients' h_i.

    Example:
        >>> feddyn()
        Algorithm(drift=FedDyn(mu=0.1), aggregation=Uniform())

    References:
        Acar et al., Federated learning based on dynamic regularization, ICLR 2021.

    Note:
        The sum in h runs over (w_i - w) of the cohort and is divided by all N clients; texts and ports differ on
        both. The model evaluated is the server's, which contains the extrapolation by h.
    """
    return Algorithm(drift=FedDyn(mu), aggregation=Uniform())
