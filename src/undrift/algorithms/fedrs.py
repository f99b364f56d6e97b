"""FedRS."""

from undrift.blocks import RestrictedLogits
from undrift.core.method.algorithm import Algorithm


def fedrs(alpha: float = 0.5) -> Algorithm:
    """FedRS: the logits of classes that a client does not have are scaled down in training.

    Use it for classifiers where clients lack whole classes: clients and traffic stay those of FedAvg. Not where every
    client has every class: nothing changes.

    The weights of a missing class are only ever pushed away from a client's features. Scaled logits make those pushes
    smaller.

        client:  loss <- mean_x CE(s f(x), y), s_c = 1 for the client's own classes and alpha for the others
        server:  FedAvg

    Args:
        alpha: factor on the logits of missing classes, from 0 to 1; 1 gives FedAvg.

    Limits:
        alpha = 1 gives FedAvg.
        Where every client has every class it is FedAvg.

    Example:
        >>> fedrs()
        Algorithm(objective=RestrictedLogits(alpha=0.5))

    References:
        Li et al., FedRS: federated learning with restricted softmax for label distribution non-IID data, KDD 2021.

    Note:
        The factor is on the logit with its bias, as in released ports; the paper scales the product of weights and
        features. Ports use alpha = 0.5 or 0.1, and one counts a class with up to two examples as missing.
    """
    return Algorithm(objective=RestrictedLogits(alpha))
