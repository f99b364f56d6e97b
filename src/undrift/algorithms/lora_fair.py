"""LoRA-FAIR."""

from undrift.blocks import CorrectedFactor
from undrift.core.method.algorithm import Algorithm


def lora_fair(lam: float = 0.01) -> Algorithm:
    """LoRA-FAIR: the server corrects B so that the product of averaged factors comes near the mean of the products.

    Use it where both factors shall train at FedAvg's traffic, and the server may see every upload. Not with secure
    aggregation, nor where the mean must be exact: see FedEx-LoRA.

    What averaging loses is largest along the rows of A, where a change of B makes up for it.

        client:  A and B move
        server:  A = sum_i p_i A_i,  E = sum_i p_i B_i A_i - B A;   B <- sum_i p_i B_i + E A^T (A A^T + lam I)^-1

    Args:
        lam: strength of the ridge; inf gives FedAvg.

    Limits:
        lam=inf gives FedAvg.
        One client gives FedAvg.

    Example:
        >>> lora_fair(0.1)
        Algorithm(aggregation=CorrectedFactor(lam=0.1))

    References:
        Bian et al., LoRA-FAIR: federated LoRA fine-tuning with aggregation and initialization refinement, ICCV 2025.

    Note:
        The paper minimises a similarity by gradient steps; this is its least-squares form with a ridge, solved exactly:
        it has no server learning rate.
    """
    return Algorithm(aggregation=CorrectedFactor(lam))
