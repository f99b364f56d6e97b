"""MOON."""

from undrift.blocks import Contrast
from undrift.core.method.algorithm import Algorithm


def moon(mu: float = 5.0, temperature: float = 0.5, features: str = "") -> Algorithm:
    """MOON: a client's features stay near those of the global model and away from those of its last local model.

    Use it for classifiers under label skew where each client takes part often: it keeps its last model. Not where
    clients are seen once or computation is scarce: without a last model there is no term, and a step takes two more
    forward passes.

    The global model has seen more classes, so it represents a batch better than a local one. The contrast pulls the
    client's representation towards the better one while it trains, instead of its weights.

        client:  loss <- loss + mu mean(-log(e^(s(z, z0)/T) / (e^(s(z, z0)/T) + e^(s(z, z_old)/T))))
                 z, z0, z_old = features at w, at w0 and at the w of the client's last round;  s the cosine
        server:  FedAvg

    Args:
        mu: strength of the contrast; 0 gives FedAvg. 5 for CIFAR-10, 1 for CIFAR-100.
        temperature: T, the temperature of the softmax over the two cosines.
        features: name of the layer whose output is contrasted; "" takes the input of the last linear layer.

    Limits:
        With mu = 0 it is FedAvg.
        In a client's first round there is no last model and no term: FedAvg.
        Where the last model equals the received one the term is mu log 2, without a gradient.

    Example:
        >>> moon(mu=1.0)
        Algorithm(objective=Contrast(mu=1.0, temperature=0.5, features=''))

    References:
        Li et al., Model-contrastive federated learning, CVPR 2021.

    Note:
        The paper contrasts the output of a projection head of two layers of width 256, which is part of the model,
        before the classifier. Here any model will do: by default the classifier's input is contrasted, as common ports
        do. Name a projection head with features= to follow the paper, and give it to every method compared. The
        authors' code contrasts clients that never took part with a random network; here they have no term. With batch
        normalisation, z0 and z_old use the client's current running statistics. The features at w0 and w_old
        cost two forward passes a step.
    """
    return Algorithm(objective=Contrast(mu, temperature, features))
