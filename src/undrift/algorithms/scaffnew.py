"""Scaffnew."""

from undrift.blocks import Scaffnew, Uniform
from undrift.core.method.algorithm import Algorithm


def scaffnew(p: float = 0.1) -> Algorithm:
    """Scaffnew: control variates that move by what averaging changed, for any number of local steps. Also ProxSkip.

    Use it where all clients take part in every round and exact agreement matters: local steps save communication as
    acceleration does. Not with small cohorts: its theory needs every client in every round.

    An average is a projection that costs a round, and may be skipped with probability 1 - p if each client corrects its
    gradient by a variate h_i that adds up what averaging changed.

        client:  y <- y - lr (g(y) - h_i), for the round's number of steps
        server:  w <- 1/N sum_i y_i;   then on every client h_i <- h_i + p/lr (w - y_i)

    Args:
        p: probability of a communication after a step, one over the mean number of local steps.

    Limits:
        With all clients in a round and 1/p steps in each it is SCAFFOLD.
        p = 1 with one full-batch step a round is gradient descent on the mean loss.

    Example:
        >>> scaffnew(0.5)
        Algorithm(drift=Scaffnew(p=0.5), aggregation=Uniform())

    References:
        Mishchenko et al., ProxSkip: yes! Local gradient steps provably lead to communication acceleration! Finally!,
        ICML 2022.

    Note:
        The number of steps is a setting of all methods, Local.steps: a fixed 1/p, or "mypackage.work:f" for a random
        one that is the same on all clients. A variate is held as c_i - c, as in SCAFFOLD, so that it needs no second
        visit after averaging; with smaller cohorts, for which the paper has no rule, it follows SCAFFOLD's.
    """
    return Algorithm(drift=Scaffnew(p), aggregation=Uniform())
