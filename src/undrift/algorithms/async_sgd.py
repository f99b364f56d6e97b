"""Asynchronous SGD with delay-adaptive steps."""

from undrift.blocks import Asynchronous, Average, ByAge
from undrift.core.method.algorithm import Algorithm


def async_sgd(lr: float = 1.0, concurrency: int = 10, max_age: int | None = None) -> Algorithm:
    """Asynchronous SGD with delay-adaptive steps: uploads that are older than the clients in flight explain move less.

    Use it to step at every arrival with a guarantee that does not depend on the slowest client. Not where fast and slow
    clients have different data: fast ones arrive more often and count more.

    With M clients in flight an upload's age tau, the number of steps since its client began, is M - 1 on average. Only
    uploads that are older move the model less, so one slow client does not force a small rate on all.

        server:  at each arrival  w <- w + lr min(1, M / tau) delta_i

    Args:
        lr: server learning rate.
        concurrency: M, how many clients train at the same time, and the age from which steps shrink.
        max_age: uploads older than so many steps are rejected; None takes all. 2 M is the variant without shrinking.

    Limits:
        With M = 1 every age is 0: clients train one after the other, from each other's models.

    Example:
        >>> async_sgd(0.5).aggregation
        ByAge(rule='reciprocal', a=0.5, b=10.0, examples=False)

    References:
        Koloskova, Stich, Jaggi, Sharper convergence guarantees for asynchronous SGD, NeurIPS 2022; Mishchenko et al.,
        Asynchronous SGD beats minibatch SGD under arbitrary delays, NeurIPS 2022.

    Note:
        The papers have one local step and constants of the loss; here a displacement of any number of steps takes the
        place of the step, and only the form of the factor is theirs.
    """
    return Algorithm(
        aggregation=ByAge("reciprocal", b=float(concurrency)),
        server_optimizer=Average(lr),
        schedule=Asynchronous(concurrency=concurrency, max_age=max_age),
    )
