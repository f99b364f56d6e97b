"""FedRot-LoRA."""

from undrift.blocks import Rotated
from undrift.core.method.algorithm import Algorithm


def fedrot_lora(lam: float = 0.5) -> Algorithm:
    """FedRot-LoRA: clients turn the factors of their adapters towards the received ones before they are averaged.

    Use it where both factors shall train at no further traffic. Not where the mean must be exact, nor beside
    corrections that read displacements as gradient steps: see FFA-LoRA and FedEx-LoRA.

    B Q and Q^T A have the product of B and A, so that much of what differs between clients is only their coordinates.

        client:  even rounds: U S V^T = A_i A^T;   odd rounds: U S V^T = B_i^T B;   R = U V^T, a rotation
                 Q = the rotation nearest to (1 - lam) I + lam R;   A_i <- Q^T A_i;   B_i <- B_i Q
        server:  FedAvg

    Args:
        lam: how far the factors turn; 0 gives FedAvg.

    Limits:
        lam=0 gives FedAvg.
        The product of every client is what it was.

    Example:
        >>> fedrot_lora()
        Algorithm(release=Rotated(lam=0.5))

    References:
        Zhang et al., FedRot-LoRA: mitigating rotational misalignment in federated LoRA, 2026.

    Note:
        Rounds count from 0, so that the first one turns by A: B is zero then.
    """
    return Algorithm(release=Rotated(lam))
