"""FedProx."""

from undrift.blocks import Proximal
from undrift.core.method.algorithm import Algorithm


def fedprox(mu: float = 0.01) -> Algorithm:
    """FedProx: FedAvg with a pull towards the received model.

    Use it as a first safeguard against drift: it needs no client state and no additional traffic, and has one strength
    to tune. Not for exact convergence on very different clients: the pull reduces the drift but does not remove it.

    The pull keeps clients with few or unusual examples near the received model, at the price of slower local progress.

        client:  g <- g + mu (w - w0)
        server:  FedAvg

    Args:
        mu: strength of the pull; 0 gives FedAvg.

    Limits:
        mu = 0 gives FedAvg.
        With one local step a round it is FedAvg.

    Example:
        >>> fedprox(0.1)
        Algorithm(objective=Proximal(mu=0.1))

    References:
        Li et al., Federated optimization in heterogeneous networks, MLSys 2020.

    Note:
        The norm of the proximal term is squared; ports without the square pull with constant strength. Weights are
        by examples, as in the authors' code.
    """
    return Algorithm(objective=Proximal(mu))
