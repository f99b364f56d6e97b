"""FedSA-LoRA."""

from undrift.blocks import PrivateFactor
from undrift.core.method.algorithm import Algorithm


def fedsa_lora(head: bool = True) -> Algorithm:
    """FedSA-LoRA: clients share the factor A of every adapter and keep their own B.

    Use it where clients' tasks or labels differ and each may have a model of its own. Not where one global model is
    needed, nor for clients that never train: their B is zero.

    What A has learned is common to clients, what B has learned is their own.

        client:  start from (A, B_i);   A and B_i move;   at the end keep B_i
        server:  A <- A + sum_i n_i/n delta_i

    Args:
        head: whether the head stays with the client, too; False shares all that is no factor.

    Limits:
        One client is trained as by FedAvg.

    Example:
        >>> fedsa_lora()
        Algorithm(personalization=PrivateFactor(head=True))

    References:
        Guo et al., Selective aggregation for low-rank adaptation in federated learning, ICLR 2025.

    Note:
        What stays is the factor that starts at zero: A of an embedding. A client is evaluated with the newest shared
        factor and its own.
    """
    return Algorithm(personalization=PrivateFactor(head))
