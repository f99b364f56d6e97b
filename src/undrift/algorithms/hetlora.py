"""HetLoRA."""

from undrift.blocks import ByProductNorm, LeadingRanks
from undrift.core.method.algorithm import Algorithm


def hetlora(lam: float = 0.001, gamma: float = 0.99) -> Algorithm:
    """HetLoRA: clients have adapters of several ranks, padded with zeros for the mean and cut to each client's rank.

    Use it where devices differ in what they can train: give `local.rank` a number per client. Not where the mean must
    be exact: `flexlora + leading-ranks` decomposes the mean product instead.

    Clients whose products are large have learned more and count more; ranks that a client does not use are dropped.

        client:  A_i = A[:r_i],  B_i = B[:, :r_i];   loss + lam |B_i[:, k:]| |A_i[k:]|,  k = floor(gamma r_i)
                 if |B_i[:, k:]| |A_i[k:]| shrank in the round: r_i <- k
        server:  A = sum_i a_i A_i,  B = sum_i a_i B_i, padded with zeros;   a_i = |B_i A_i| / sum_j |B_j A_j|

    Args:
        lam: strength of the term that shrinks the last ranks; 0 leaves all ranks as they are.
        gamma: the share of a client's ranks that the term leaves alone.

    Limits:
        Clients of one rank, with products of one norm and lam=0, are averaged as by FedAvg with equal weights.
        lam=0 changes no rank.

    Example:
        >>> hetlora(0.0)
        Algorithm(aggregation=ByProductNorm(), personalization=LeadingRanks(lam=0.0, gamma=0.99, fixed_alpha=False))

    References:
        Cho et al., Heterogeneous LoRA for federated fine-tuning of on-device foundation models, EMNLP 2024.

    Note:
        One scale s holds for all ranks, and one weight for all adapters of a client and its head. A rank that is
        dropped still is in the upload of its round. The default of lam is ours: the paper tunes it. Messages have the
        largest rank.
    """
    return Algorithm(aggregation=ByProductNorm(), personalization=LeadingRanks(lam, gamma))
