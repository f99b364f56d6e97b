"""A method of one block."""

from example_plugin.blocks import Memory
from undrift import Algorithm


def fedmemory(mu: float = 0.01) -> Algorithm:
    """FedMemory: FedAvg with a pull towards each client's own last model.

    Use it where clients take part often: each keeps its last model. Not for cross-device settings, where that model is
    missing or stale.

    A client that takes part again does not forget what it learned last time.

        client:  g <- g + mu (w - v_i);   at the end v_i <- w
        server:  FedAvg

    Args:
        mu: strength of the pull; 0 gives FedAvg.

    Limits:
        mu = 0 gives FedAvg.

    References:
        An example, of no paper.
    """
    return Algorithm(objective=Memory(mu))
