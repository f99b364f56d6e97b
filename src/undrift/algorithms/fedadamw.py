"""FedAdamW."""

from undrift.blocks import MixedAdamW, Uniform
from undrift.core.method.algorithm import Algorithm


def fedadamw(gamma: float = 0.5, means: bool = True, fresh: bool = False) -> Algorithm:
    """FedAdamW: AdamW on the clients that begins from the server's squares and adds the last global direction.

    Use it for transformers and other models that need AdamW: clients share what they know of the squares. Not where
    download is scarce: three models are sent, and the rate is AdamW's, near 1e-3, not SGD's.

    A fresh AdamW spends every round's first steps on estimating its squares, and clients' estimates differ. The mean of
    the last cohort's is a better start, and a share of the global direction keeps clients together.

        client:  m = 0, v the server's;   AdamW at the server's count of steps;   with every step y <- y - lr gamma d/K
        server:  v <- 1/m sum_i v_i, one number for each tensor;   d <- -1/m sum_i delta_i / lr
                 w <- w + 1/m sum_i delta_i

    Args:
        gamma: strength of the global direction; 0 leaves AdamW from the server's squares.
        means: share one mean of v for each tensor, as in the paper; otherwise all of v, as in released code.
        fresh: correct the bias of m by the steps of the round, not by all steps so far.

    Limits:
        gamma = 0 is AdamW on the clients from averaged squares; in the first round it is plain local AdamW.
        A tensor of one element has the same mean and v.

    Example:
        >>> fedadamw(means=False).local_optimizer.gamma
        0.5

    References:
        Liu et al., FedAdamW: a communication-efficient optimizer with convergence and generalization guarantees for
        federated large models, AAAI 2026.

    Note:
        A block of the paper's block means is a tensor here. The means travel as a vector of the model's length, so the
        traffic is that of all of v. m restarts at zero while its bias is corrected for all steps so far, so the first
        steps of a round are short: a warm-up, in the paper and in released code. Released code ignores the server's v
        where a worker is used for the first time; here it arrives at every start.
    """
    return Algorithm(local_optimizer=MixedAdamW(gamma, means=means, fresh=fresh), aggregation=Uniform())
