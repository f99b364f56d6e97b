"""FedMuon."""

from undrift.blocks import MixedMuon, Uniform
from undrift.core.method.algorithm import Algorithm


def fedmuon(gamma: float = 0.5, alpha: float = 0.5, beta1: float = 0.98) -> Algorithm:
    """FedMuon: Muon on the clients that begins from the server's mean buffer and mixes in the last global direction.

    Use it where Muon on the clients learns fast and their models part: buffer and direction are shared. Not where
    traffic is scarce: three models are sent and two uploaded.

    Orthogonal steps of different clients differ more than their gradients. A common buffer and a share of the last
    global direction keep them together.

        client:  m the server's;   y <- y - lr (alpha (1 - gamma) Muon's step + gamma d/K)
        server:  m <- 1/m sum_i m_i;   d <- -1/m sum_i delta_i / lr;   w <- w + 1/m sum_i delta_i

    Args:
        gamma: share of the global direction; 0 leaves Muon from averaged buffers.
        alpha: factor on Muon's own steps; 0.5 for a ResNet at rate 0.03, 10 for a transformer at 3e-4.
        beta1: memory of the gradient.

    Limits:
        gamma = 0 and alpha = 1 is Muon on the clients from averaged buffers; in the first round local Muon.

    Example:
        >>> fedmuon().local_optimizer.beta1
        0.98

    References:
        Liu et al., FedMuon: accelerating federated learning with matrix orthogonalization, 2025.

    Note:
        One of two methods of this name; the other is fedmuon-cv. Muon's scale is that of local-muon, which suits
        AdamW's rates, and its arithmetic float32 instead of bfloat16. Tensors that are no matrices take Adam's steps
        from fresh moments in every round. Released code ignores the server's buffer where a worker is used for the
        first time; here it arrives at every start.
    """
    return Algorithm(local_optimizer=MixedMuon(gamma, alpha, beta1), aggregation=Uniform())
