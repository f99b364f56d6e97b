"""AREA."""

from undrift.blocks import Asynchronous, Residual, Uniform
from undrift.core.method.algorithm import Algorithm


def area(max_age: int | None = None) -> Algorithm:
    """AREA: the model is the mean of the models that all clients contributed last.

    Use it to step at every arrival without a bias towards fast clients and without a rate to tune. Not where most
    clients never take part: each counts as the first model until it reports.

    A client uploads how its model differs from the one that it contributed before, so that the sum of all models is
    kept exactly, whatever arrives when.

        client:  y_new = w0 + delta_i;   uploads y_new - y_i;   then y_i <- y_new
        server:  at each arrival  w <- w + (y_new - y_i) / N

    Args:
        max_age: uploads older than so many steps are rejected; None takes all.

    Limits:
        With all clients in synchronous rounds it is FedAvg with equal weights, up to rounding.

    Example:
        >>> area()
        Algorithm(release=Residual(), aggregation=Uniform(), schedule=Asynchronous(concurrency=None, max_age=None))

    References:
        Iakovidou, Kim, Asynchronous federated stochastic optimization for heterogeneous objectives under arbitrary
        delays, 2024, arXiv 2405.10123.

    Note:
        The form follows from the paper's abstract (residuals of models, memory on the clients, exact averaging) and the
        invariant w = mean of all y_i; the paper's own update was not compared. The invariant needs y_i = the first
        model for clients that are new, so the server sends it, too.
    """
    return Algorithm(release=Residual(), aggregation=Uniform(), schedule=Asynchronous(max_age=max_age))
