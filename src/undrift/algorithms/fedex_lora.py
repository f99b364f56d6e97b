"""FedEx-LoRA."""

from undrift.blocks import CrossProducts, Folded
from undrift.core.method.algorithm import Algorithm


def fedex_lora(scale: float = 1.0) -> Algorithm:
    """FedEx-LoRA: what the product of averaged factors lacks goes into the weight under the adapter.

    Use it where both factors shall train and the mean must be exact. Not with a quantised base, nor where a whole
    weight of every adapted layer is too much traffic: it travels up and down.

    After a round the model is the mean of the clients' models, layer by layer, which FedAvg on factors only approaches.

        client:  A and B move;   delta_i on the base W <- dB_i dA_i
        server:  FedAvg on A and B;   W <- W + s (sum_i p_i dB_i dA_i - dB dA), dB and dA the means

    Args:
        scale: s, alpha / r of every adapter.

    Limits:
        One client gives FedAvg.
        Clients that agree on one factor give FedAvg.

    Example:
        >>> fedex_lora(2.0)
        Algorithm(release=CrossProducts(), personalization=Folded(scale=2.0, restart=False, fixed_alpha=False))

    References:
        Singhal et al., FedEx-LoRA: exact aggregation for federated and efficient fine-tuning of large language models,
        ACL 2025.

    Note:
        The base is part of the model (undrift.models.open_base), so that absent clients and resumed runs have its
        version. The code adds the residual transposed, which is right for Conv1D only; here the layer decides. Weights
        are p_i in both terms. Products of displacements have the same covariance as those of the factors, and only sums
        reach the server.
    """
    return Algorithm(release=CrossProducts(), personalization=Folded(scale))
