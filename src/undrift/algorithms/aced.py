"""ACED."""

from undrift.blocks import Asynchronous, Average, Recent, Remembered, Uniform
from undrift.core.method.algorithm import Algorithm


def aced(lr: float = 0.1, delay: int | None = 50, max_age: int | None = None) -> Algorithm:
    """ACED: ACE without the clients whose last displacement comes from too old a model.

    Use it where some clients are away for long: what they sent last then leaves the mean. Not where slow clients are
    always older than the delay: they are left out, and the model follows the others.

    ACE lets every client count by its last displacement, however old. Here the mean is over the clients whose last one
    comes from one of the newest models.

        client:  uploads delta_j, and with it u_j and its version v_j;   then u_j <- delta_j, v_j <- the version of w0
        server:  at each arrival  A = {i: t - v_i <= delay};   w <- w + lr / |A| sum_{i in A} u_i

    t counts the steps of the server. Clients that have not reported yet have u_i = 0 and v_i = 0.

    Args:
        lr: server learning rate.
        delay: the largest age, in steps, with which a displacement counts; None lets all count, as ACE.
        max_age: uploads older than so many steps are rejected; None takes all.

    Limits:
        delay = None gives ACE; so does a delay as long as the run, up to rounding.
        With delay = 0 and one client in flight it is SGD with the displacement as the step, from the second step on.

    Example:
        >>> aced(delay=20).release
        Recent(delay=20)

    References:
        Chang et al., 2025, arXiv 2511.19066.

    Note:
        The paper caches u_j of every client on the server, filled by all clients before the first step. Here they start
        at 0. A client that does not report any more cannot take its displacement back, so the server keeps a sum for
        each of the last delay + 1 versions, and the client uploads u_j beside delta_j to be taken out of its sum: twice
        the traffic of ace.
    """
    release = Remembered(spread=True) if delay is None else Recent(delay)
    return Algorithm(
        release=release, aggregation=Uniform(), server_optimizer=Average(lr), schedule=Asynchronous(max_age=max_age)
    )
