"""RoLoRA."""

from undrift.blocks import OneFactor
from undrift.core.method.algorithm import Algorithm


def rolora() -> Algorithm:
    """RoLoRA: the factors of the adapters take turns: B in one round, A in the next.

    Use it in place of FFA-LoRA where the rank is small: both factors learn, and every mean is exact. Not beside
    corrections that remember directions: a factor stands still in every other round.

    In every round all clients have one factor in common, so that the mean of products is the product of means.

        client:  rounds 0, 2, ...: B <- B - lr g_B;   rounds 1, 3, ...: A <- A - lr g_A;   heads in all rounds
        server:  FedAvg

    Limits:
        One round is that of FFA-LoRA.
        One client trains the factors in turns.

    Example:
        >>> rolora()
        Algorithm(personalization=OneFactor(alternate=True, refactor=0))

    References:
        Chen et al., Robust federated finetuning of LLMs via alternating optimization of LoRA, NeurIPS 2025.

    Note:
        The first round trains the factor that starts at zero: the other one would have no gradient.
    """
    return Algorithm(personalization=OneFactor(alternate=True))
