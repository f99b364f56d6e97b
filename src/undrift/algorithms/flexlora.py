"""FlexLoRA."""

from undrift.blocks import LargestSingular
from undrift.core.method.algorithm import Algorithm


def flexlora() -> Algorithm:
    """FlexLoRA: the server decomposes the mean of the clients' products and returns its largest singular values.

    Use it where both factors shall train, the base must stay as it is, and the server may see every upload. Not beside
    corrections that remember directions, nor with secure aggregation.

    It is the best approximation of the mean product by an adapter of the rank.

        client:  A and B move
        server:  sum_i p_i B_i A_i = U S V^T, largest first;   B <- U_r S_r,  A <- V_r^T

    Limits:
        One client keeps its product.
        The error of the product is the length of the singular values left out.

    Example:
        >>> flexlora()
        Algorithm(aggregation=LargestSingular())

    References:
        Bai et al., Federated fine-tuning of large language models under heterogeneous tasks and client resources,
        NeurIPS 2024.

    Note:
        All clients have one rank and one scale; the paper's have several, as in `flexlora + leading-ranks`. Signs are
        fixed: in every column of U the largest entry is positive. The decomposition is that of a matrix as small as the
        sum of the ranks.
    """
    return Algorithm(aggregation=LargestSingular())
