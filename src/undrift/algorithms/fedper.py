"""FedPer."""

from undrift.blocks import Private
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedper(head: Part = "last") -> Algorithm:
    """FedPer: the body is shared, the head stays with each client, both are trained together.

    Use it where labels differ between clients and inputs are alike: features are shared, each client keeps its
    classifier. Not where one global model is needed, nor for clients that never train: their head is the initial one.

    Clients whose labels differ agree on features but not on the classifier, so the classifier is not averaged.

        client:  start from (B, H_i);   w <- w - lr g(w), body and head;   at the end keep H_i
        server:  B <- B + sum_i n_i/n delta_i, on the body

    Args:
        head: the private tensors: "last" for those of the last module, or name patterns such as ("head.*",).

    Limits:
        head=() gives FedAvg.
        head="all" is purely local training: nothing is shared, not even running statistics.

    Example:
        >>> fedper()
        Algorithm(personalization=Private(names='last', tuned=0))

    References:
        Arivazhagan et al., Federated learning with personalization layers, 2019.

    Note:
        The paper lets all clients take part in every round; here some may. A client that never took part has the
        common initial head. A client is evaluated with the newest body and its own head.
    """
    return Algorithm(personalization=Private(head))
