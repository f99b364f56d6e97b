"""FLoRA."""

from undrift.blocks import CrossProducts, Folded
from undrift.core.method.algorithm import Algorithm


def flora(scale: float = 1.0, fixed_alpha: bool = False) -> Algorithm:
    """FLoRA: the mean of the clients' products goes into the weight under the adapter, which then begins anew.

    Use it where the change of the model shall have more than the adapter's rank, or where devices differ in what they
    can train: give `local.rank` a number per client. Not with a quantised base, nor beside
    corrections that remember directions: the factors are thrown away in every round.

    Stacked factors have the mean of the products as their product; the sum of a round is of a higher rank.

        client:  A_i = A[:r_i] and B_i = B[:, :r_i] move, r_i the client's rank;   delta_i on the base W <- dB_i dA_i
        server:  W <- W + s sum_i p_i B_i A_i;   then A random, B zero

    Args:
        scale: s, alpha / r of every adapter.
        fixed_alpha: every client has the scale alpha / r_i, which then is in its product; False gives all s.

    Limits:
        The model after one round is that of FedEx-LoRA.

    Example:
        >>> flora(2.0)
        Algorithm(release=CrossProducts(), personalization=Folded(scale=2.0, restart=True, fixed_alpha=False))

    References:
        Wang et al., FLoRA: federated fine-tuning large language models with heterogeneous low-rank adaptations,
        NeurIPS 2024.

    Note:
        The paper stacks the factors of all clients as [p_1 B_1, p_2 B_2, ...] and [A_1; A_2; ...]; here the same sum of
        products is formed from plain sums, as in FedEx-LoRA, and messages have the largest rank. New factors are drawn
        by peft's rule, and a client has the first rows of a common A.
    """
    return Algorithm(release=CrossProducts(), personalization=Folded(scale, restart=True, fixed_alpha=fixed_alpha))
