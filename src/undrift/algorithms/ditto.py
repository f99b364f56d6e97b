"""Ditto."""

from undrift.blocks import Ditto
from undrift.core.method.algorithm import Algorithm


def ditto(lam: float = 1.0, lr: float | None = None) -> Algorithm:
    """Ditto: FedAvg, plus a personal model on every client that is pulled towards the global one.

    Use it where each client needs a model of its own and the global model must not depend on it, also under a robust
    rule. Not where memory or computation is scarce: a client keeps a second model and takes two gradients per step.

    A personal model is between local training and the global model; the pull determines where. The global model does
    not depend on it, so it may come from any robust rule.

        client:  w <- w - lr g(w);   v_i <- v_i - lr_p (g(v_i) + lam (v_i - w0)), w0 the received model
        server:  FedAvg
        evaluation:  v_i

    Args:
        lam: strength of the pull; 0 makes v_i purely local, large makes it the received model while lr_p lam < 1.
        lr: lr_p, the rate of v_i; None takes that of the global model.

    Limits:
        The global model is FedAvg's, whatever lam.
        lam=0 makes v_i local training.

    Example:
        >>> ditto(0.1)
        Algorithm(personalization=Ditto(lam=0.1, lr=None))

    References:
        Li et al., Ditto: fair and robust federated learning through personalization, ICML 2021.

    Note:
        The anchor is the received model, not the one just trained. Both models see the same batches, clip and weight
        decay. v_i starts from the first model a client receives. Weights are by examples under uniform sampling; the
        authors' code samples by size and averages uniformly. Its choice of lam by validation loss is not built in: lam
        from 0.1 to 2 is what it tries. lr_p lam above 2 diverges. With batch norm set local.buffers = "keep": else v_i
        is evaluated with running statistics averaged over all clients.
    """
    return Algorithm(personalization=Ditto(lam, lr))
