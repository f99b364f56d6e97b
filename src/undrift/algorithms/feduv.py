"""FedUV."""

from undrift.blocks import SpreadOut
from undrift.core.method.algorithm import Algorithm


def feduv(lam: float = 2.5, mu: float = 0.5, features: str = "") -> Algorithm:
    """FedUV: each client's probabilities shall vary, and its features spread, as if its data were those of all.

    Use it for classifiers under strong label skew, at no traffic and hardly any computation. Not with very small
    batches, nor where clients really have one class each: probabilities then vary against the labels.

    A classifier trained on few classes gives nearly constant probabilities, and features crowd together. Both are
    visible in a batch and need no knowledge of other clients.

        client:  loss <- loss + lam mean_c max(0, C^(-1/2) - std_x softmax(f(x))_c)
                         + mu mean_{x, x'} exp(-||z(x) - z(x')||^2 / sigma)
                 z the features, sigma the median of the batch's squared distances that are not zero
        server:  FedAvg

    Args:
        lam: strength of the first term; 0 switches it off.
        mu: strength of the second term; 0 switches it off.
        features: name of the layer whose output is spread; "" takes the input of the last linear layer.

    Limits:
        lam = mu = 0 gives FedAvg.
        Batches of one example have no terms.

    Example:
        >>> feduv()
        Algorithm(objective=SpreadOut(lam=2.5, mu=0.5, features=''))

    References:
        Son et al., FedUV: uniformity and variance for heterogeneous federated learning, CVPR 2024.

    Note:
        C^(-1/2) is the standard deviation of one-hot rows over balanced classes, for large C. sigma has no gradient.
        The standard deviation is that of a sample, with 1e-12 added to its square.
    """
    return Algorithm(objective=SpreadOut(lam, mu, features))
