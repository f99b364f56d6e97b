"""FedAsync."""

from typing import Literal

from undrift.blocks import Asynchronous, Mixing, Proximal
from undrift.core.method.algorithm import Algorithm


def fedasync(
    alpha: float = 0.6,
    rule: Literal["constant", "polynomial", "hinge"] = "polynomial",
    a: float = 0.5,
    b: float = 4.0,
    mu: float = 0.005,
    max_age: int | None = None,
) -> Algorithm:
    """FedAsync: the server mixes every model into its own when it arrives, old ones less.

    Use it as the baseline of asynchronous training. Not with many clients in flight: every arrival replaces a share of
    the model by one trained from an older model; FedBuff averages several displacements first.

    No client waits for another: one that reports gets the new model at once. The age tau of a model is the number of
    steps since its client began; the older it is, the less it counts.

        client:  F_i(w) + mu/2 ||w - w0||^2
        server:  at each arrival  w <- (1 - alpha s(tau)) w + alpha s(tau) w_i
        s(tau):  1;   (1 + tau)^-a;   1 if tau <= b, else 1 / (a (tau - b) + 1)

    Args:
        alpha: the share of a fresh model.
        rule: the function s of the age tau.
        a: how fast s falls; the hinge's is 10 in common ports.
        b: the age up to which the hinge is 1.
        mu: strength of the proximal term; 0 switches it off.
        max_age: models older than so many steps are rejected; None takes all.

    Limits:
        With one client in flight every age is 0, and clients train one after the other.

    Example:
        >>> fedasync().aggregation
        Mixing(rule='polynomial', a=0.5, b=4.0, examples=False, alpha=0.6)

    References:
        Xie, Koyejo, Gupta, Asynchronous federated optimization, 2019.

    Note:
        The share of an arrival is alpha s(tau), computed anew for each; a port that multiplies the stored alpha by s
        makes it vanish. The hinge is continuous at b. The result depends on the order of arrivals, as in the paper.
    """
    return Algorithm(
        objective=Proximal(mu), aggregation=Mixing(rule, a, b, alpha=alpha), schedule=Asynchronous(max_age=max_age)
    )
