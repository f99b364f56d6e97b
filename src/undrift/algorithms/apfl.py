"""APFL."""

from undrift.blocks import Mixture
from undrift.core.method.algorithm import Algorithm


def apfl(alpha: float = 0.5, adaptive: bool = False) -> Algorithm:
    """APFL: a client's model is a mixture of its own model and the global one, both trained on its data.

    Use it where clients differ in how much they gain from each other: with adaptive=True each learns its own mixture.
    Not where memory or computation is scarce: a client keeps a second model and takes two gradients per step.

    How much a client gains from others differs from client to client; alpha is how much it keeps for itself.

        client:  each step  v_i <- v_i - lr alpha g(m_i), m_i = alpha v_i + (1 - alpha) w;   w <- w - lr g(w)
                 adaptive, after a round's first step:  alpha <- alpha - lr <v_i - w, g(m_i)>, cut to [0, 1]
        server:  FedAvg
        evaluation:  alpha v_i + (1 - alpha) w, w the newest global model

    Args:
        alpha: share of the client's own model; 0 gives FedAvg. The paper has 0.25, 0.5 and 0.75.
        adaptive: whether every client learns its alpha, from this one on.

    Limits:
        alpha=0 gives FedAvg, and the global model is FedAvg's for any alpha.
        alpha=1 evaluates v_i, which is local training.

    Example:
        >>> apfl()
        Algorithm(personalization=Mixture(alpha=0.5, adaptive=False))

    References:
        Deng et al., Adaptive personalized federated learning, 2020.

    Note:
        Parameters are mixed, as in the paper; the authors' library mixes the outputs of two networks and adds 0.02
        alpha to alpha's gradient. The factor alpha in v_i's step is the chain rule's; some ports drop it, one weighs
        both models by alpha, another trains v_i on its own loss and folds the mixture back. m_i holds w before its
        step. v_i starts from the first model a client receives. Weights are by examples. With batch norm set
        local.buffers = "keep": else the mixture is evaluated with running statistics averaged over all clients.
    """
    return Algorithm(personalization=Mixture(alpha, adaptive))
