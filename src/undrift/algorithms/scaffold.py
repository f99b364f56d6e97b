"""SCAFFOLD."""

from undrift.blocks import Scaffold, Uniform
from undrift.core.method.algorithm import Algorithm


def scaffold() -> Algorithm:
    """SCAFFOLD: control variates replace each client's mean gradient by the global one.

    Use it where each client takes part often: it keeps a control variate per client and doubles the download. Not for
    cross-device settings in which a client is seen once or rarely: its variate is then zero or stale.

    A client's drift is the difference between its own gradient and the global one; both are estimated and the
    difference is removed from every step.

        client:  g <- g - c_i + c;   at the end c_i <- c_i - c - delta_i / (steps lr)
        server:  c <- c + 1/N sum_i (new c_i - old c_i);   w <- w + 1/m sum_i delta_i

    Limits:
        With variates kept at zero it is FedAvg with equal weights.
        With one full-batch step a round it is SCAFFOLD I.

    Example:
        >>> scaffold()
        Algorithm(drift=Scaffold(), aggregation=Uniform())

    References:
        Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning, ICML 2020 (option II).

    Note:
        The server derives the change of c from the displacements, so the upload is one model instead of two, also for
        unequal numbers of steps. The rate is that of the round in which delta was made, the variates start at zero, and
        weight decay stays out of them: three places where released code differs.
    """
    return Algorithm(drift=Scaffold(), aggregation=Uniform())
