"""FLoRA."""

from undrift.blocks import CrossProducts, Folded
from undrift.core.method.algorithm import Algorithm


def flora(scale: float = 1.0) -> Algorithm:
    """FLoRA: the mean of the clients' products goes into the weight under the adapter, which then begins anew.

    Use it where the change of the model shall have more than the adapter's rank. Not with a quantised base, nor beside
    corrections that remember directions: the factors are thrown away in every round.

    Stacked factors have the mean of the products as their product; the sum of a round is of a higher rank.

        client:  A and B move;   delta_i on the base W <- dB_i dA_i
        server:  W <- W + s sum_i p_i B_i A_i;   then A random, B zero

    Args:
        scale: s, alpha / r of every adapter.

    Limits:
        The model after one round is that of FedEx-LoRA.

    Example:
        >>> flora(2.0)
        Algorithm(release=CrossProducts(), personalization=Folded(scale=2.0, restart=True))

    References:
        Wang et al., FLoRA: federated fine-tuning large language models with heterogeneous low-rank adaptations,
        NeurIPS 2024.

    Note:
        The paper stacks factors of several ranks; here all clients have one rank, and the sum of products is formed
        from plain sums, as in FedEx-LoRA. New factors are drawn by peft's rule. Only one side is weighted.
    """
    return Algorithm(release=CrossProducts(), personalization=Folded(scale, restart=True))
