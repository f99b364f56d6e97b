"""FedLWS."""

from undrift.blocks import LayerShrinking
from undrift.core.method.algorithm import Algorithm


def fedlws(beta: float = 0.03, low: float = 0.01, high: float = 0.2) -> Algorithm:
    """FedLWS: FedAvg whose layers shrink a little, the more the clients disagree about them.

    Use it to regularise the averaged model, layer by layer, where the server has no data. Not with secure aggregation,
    since the server holds every upload, nor to correct drift on the clients: local training is that of FedAvg.

    A global shrink factor regularises the averaged model. Here every layer has its own, computed from the uploads
    without proxy data.

        server, for each module l:  A_l = sum_i n_i delta_il / sum_i n_i
                 tau_l = beta 1/m sum_i ||delta_il - 1/m sum_j delta_jl||, kept in [low, high]
                 w_l <- gamma_l (w_l + A_l),   gamma_l = ||w_l|| / (||w_l|| + tau_l ||A_l||)

    Args:
        beta: how much disagreement shrinks; 0 shrinks every layer by low.
        low: the smallest tau; 0 does not shrink layers in full agreement.
        high: the largest tau; 0 gives FedAvg.

    Limits:
        low = high = 0 gives FedAvg.
        Equal uploads shrink by low, not by nothing.

    Example:
        >>> fedlws()
        Algorithm(aggregation=LayerShrinking(beta=0.03, low=0.01, high=0.2))

    References:
        Shi et al., FedLWS: federated learning with adaptive layer-wise weight shrinking, ICLR 2025.

    Note:
        The released code groups tensors up to the next name with "bias" and so shrinks the running statistics of
        BatchNorm with the layer after them; here a layer is the trainable tensors of one module, and running statistics
        are averaged by examples. A layer that is zero is not shrunk. The bounds are those of the code; low = 0.01 is a
        permanent mild weight decay. The norms need two passes over the uploads, so the server holds them all.
    """
    return Algorithm(aggregation=LayerShrinking(beta, low, high))
