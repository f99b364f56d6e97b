"""FedETF."""

from undrift.blocks import BalancedSimplex
from undrift.core.method.algorithm import Algorithm


def fedetf(tau: float = 1.0) -> Algorithm:
    """FedETF: all clients train features towards one fixed classifier, the corners of a regular simplex.

    Use it for classifiers under label skew, where trained heads disagree most between clients. Not for a pretrained
    model with a head that is to stay: it needs a model with a fixed one.

    Clients with other labels pull a common head in other directions, and features follow it. Here every class has its
    direction before training, as far from the others as C directions can be, so only features are learned, to the same
    places on every client. Logits are cosines times one trained number, and the balanced softmax counts a client's
    classes.

        client:  loss <- mean_x CE(z(x) + tau log n, y), n_c the client's examples of class c
                 z(x) = s V^T f(x) / ||f(x)||,   s a parameter of the model
                 V = sqrt(C/(C-1)) U (I - 1 1^T / C),   U^T U = I, from a seed, the same everywhere
        server:  FedAvg, s as the other parameters;   V is not sent

    Args:
        tau: strength of the balance; 0 gives FedAvg with the same model.

    Limits:
        tau = 0 gives FedAvg with the same model.
        With equally many examples of every class on each client it is FedAvg with the same model.

    Example:
        >>> fedetf()
        Algorithm(objective=BalancedSimplex(tau=1.0))

    References:
        Li et al., No fear of classifier biases: neural collapse inspired federated learning with synthetic and fixed
        classifier, ICCV 2023.

    Note:
        It needs a simplex model: "simplex-cnn", the default of a run, or Simplex(body, ...); give that model to every
        method of a comparison. Its features have as many dimensions as there are classes and s starts at 1, as in
        LeNet-5 of the authors' code; their CNN for CIFAR-10 has 64 dimensions and starts s at 10: "simplex-cnn" has
        the arguments dimension and scale. U is from a Gaussian matrix, there from a uniform one. Missing classes leave
        the softmax. Their second stage, in which each client tunes V and the linear layer in turn for itself, is left
        out: V stays.
    """
    return Algorithm(objective=BalancedSimplex(tau))
