"""FedDecorr."""

from undrift.blocks import Decorrelated
from undrift.core.method.algorithm import Algorithm


def feddecorr(beta: float = 6.4, features: str = "", literal: bool = False) -> Algorithm:
    """FedDecorr: features of a batch are kept from moving together.

    Use it as a term of any method under strong label skew, where features collapse to a few directions. Not with very
    small batches: correlations of two or three examples are near one whatever the features.

    Under label skew a client's features span fewer dimensions, and the global model inherits the collapse. Squared
    correlations between features are a cheap measure of it.

        client:  loss <- loss + beta mean_{j != k} rho_jk^2, rho the correlations of a batch's features
        server:  FedAvg

    Args:
        beta: strength of the term; 0 gives FedAvg.
        features: name of the layer whose output is decorrelated; "" takes the input of the last linear layer.
        literal: multiply the term by (B - 1)^2 / B, B the size of the batch, as in released code, where beta is 0.1.

    Limits:
        beta = 0 gives FedAvg.
        A batch whose features are uncorrelated has no term.

    Example:
        >>> feddecorr(0.1, literal=True)
        Algorithm(objective=Decorrelated(beta=0.1, features='', literal=True))

    References:
        Shi et al., Towards understanding and mitigating dimensional collapse in heterogeneous federated learning, ICLR
        2023.

    Note:
        The paper's term is the squared norm of the correlation matrix by d^2; here the diagonal, which is constant, is
        left out. Released code does not divide by the batch: its strength grows with the batch size, and its 0.1 is 6.4
        here for batches of 64.
    """
    return Algorithm(objective=Decorrelated(beta, features, literal))
