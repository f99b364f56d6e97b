"""FedSVD."""

from undrift.blocks import OneFactor
from undrift.core.method.algorithm import Algorithm


def fedsvd(period: int = 1) -> Algorithm:
    """FedSVD: FFA-LoRA whose frozen factor the server takes from a decomposition of the product.

    Use it where FFA-LoRA is too limited by its random A, and with private noise, which never enters A. Not beside
    corrections that remember directions: the coordinates of B change.

    The product is the same before and after, and A then spans what the clients have learned.

        client:  B <- B - lr g_B, heads too;   A stays
        server:  FedAvg, then B A = U S V^T,  B <- U S,  A <- V^T

    Args:
        period: rounds between two decompositions; 0 never does one, which is FFA-LoRA.

    Limits:
        period=0 gives FFA-LoRA.
        The rows of A are orthonormal after a decomposition, and the model gives what it gave before.

    Example:
        >>> fedsvd()
        Algorithm(personalization=OneFactor(alternate=False, refactor=1))

    References:
        Lee et al., FedSVD: adaptive orthogonalization for private federated learning with LoRA, NeurIPS 2025.

    Note:
        A product of zero is not decomposed. Signs are fixed: in every column of U the largest entry is positive.
        Clients receive both factors and upload one.
    """
    return Algorithm(personalization=OneFactor(refactor=period))
