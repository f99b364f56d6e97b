"""Fed-SB."""

from undrift.blocks import CoreOfUpdate
from undrift.core.method.algorithm import Algorithm


def fed_sb(scale: float = 1.0) -> Algorithm:
    """Fed-SB: a small core trains between factors that come from the first round's update of the whole weight.

    Use it where traffic or private noise decides: r^2 numbers travel for a layer, whatever its size. Not where clients
    cannot send one update of every adapted weight, nor with a quantised base.

    The mean of products B C_i A is the product with the mean of C_i, so that averaging loses nothing, and B and A span
    the directions in which full fine-tuning began.

        client:  round 0: W <- W - lr g_W;   later: C <- C - lr g_C of W + s B C A;   heads in all rounds
        server:  round 0: U S V^T = sum_i p_i delta_i on W, largest first;  B <- U_r,  A <- V_r^T,  C <- S_r / s
                 later: FedAvg

    Args:
        scale: s, alpha / r of every adapter.

    Limits:
        Of a square layer with r = d and s = 1 it is full fine-tuning by FedAvg.
        After round 0 the layer is that of FedAvg, but for the singular values left out.

    Example:
        >>> fed_sb(2.0)
        Algorithm(personalization=CoreOfUpdate(scale=2.0))

    References:
        Singhal et al., Fed-SB: a silver bullet for extreme communication efficiency and performance in (private)
        federated LoRA fine-tuning, 2025.
        Ponkshe et al., Initialization using update approximation is a silver bullet for extremely efficient low-rank
        fine-tuning, 2024.

    Note:
        The papers decompose the sign of one gradient from a part of the data, which is AdamW's first step; here it is
        the averaged displacement of a usual round, which can be clipped or made private as any other. Signs are fixed:
        in every column of U the largest entry is positive. The model has one core for each adapter
        (undrift.models.add_cores); with several, C is block-diagonal.
    """
    return Algorithm(personalization=CoreOfUpdate(scale))
