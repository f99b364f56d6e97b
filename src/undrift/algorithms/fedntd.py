"""FedNTD."""

from undrift.blocks import NotTrue
from undrift.core.method.algorithm import Algorithm


def fedntd(beta: float = 1.0, tau: float = 1.0) -> Algorithm:
    """FedNTD: on every example a client keeps what the received model thinks of the classes that are not its label.

    Use it for classifiers under label skew whose global model forgets classes from round to round. Not where
    computation is scarce: a step takes one more forward pass.

    A client forgets classes it does not have. Distilling all logits would also hold back what it shall learn, so the
    true class is left out on both sides.

        client:  loss <- loss + beta tau^2 mean_x KL(softmax(f0(x)/tau) || softmax(f(x)/tau)), both without x's class
        server:  FedAvg

    Args:
        beta: strength of the distillation; 0 gives FedAvg.
        tau: temperature.

    Limits:
        beta = 0 gives FedAvg.
        With one step a round it is FedAvg: at the received model the divergence has no gradient.

    Example:
        >>> fedntd()
        Algorithm(objective=NotTrue(beta=1.0, tau=1.0))

    References:
        Lee et al., Preservation of the global knowledge by not-true distillation in federated learning, NeurIPS 2022.

    Note:
        The received model is in evaluation mode, so the second limit needs a model without dropout and running
        statistics. A widespread port has beta = 0 by default, which is FedAvg.
    """
    return Algorithm(objective=NotTrue(beta, tau))
