"""FFA-LoRA."""

from undrift.blocks import OneFactor
from undrift.core.method.algorithm import Algorithm


def ffa_lora() -> Algorithm:
    """FFA-LoRA: every adapter keeps its random factor A, clients train and average B.

    Use it first for adapters under skewed data: half the traffic, exact means, and every correction fits. Not where the
    rank is very small: the directions of A stay those drawn at the start.

    The mean of products B_i A is the product of the mean of B_i with A, so that averaging loses nothing.

        client:  B <- B - lr g_B, heads too;   A stays
        server:  FedAvg

    Limits:
        A model whose adapters have fixed factors A is trained as FedAvg trains it.

    Example:
        >>> ffa_lora()
        Algorithm(personalization=OneFactor(alternate=False, refactor=0))

    References:
        Sun et al., Improving LoRA in privacy-preserving federated learning, ICLR 2024.

    Note:
        The frozen factor is the one that does not start at zero: B of an embedding. Another scale alpha is another
        learning rate: with SGD c alpha is as lr c^2.
    """
    return Algorithm(personalization=OneFactor())
