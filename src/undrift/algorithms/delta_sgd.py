"""Delta-SGD."""

from undrift.blocks import AutoStep
from undrift.core.method.algorithm import Algorithm


def delta_sgd(gamma: float = 2.0, delta: float = 0.1) -> Algorithm:
    """Delta-SGD: every client finds the length of its steps from the local smoothness of its loss.

    Use it where clients' losses differ in scale and no one rate suits all: it needs no tuning. Not where computation is
    scarce: a step takes three gradients.

    The change of the gradient along the last step bounds how far a step may go. Where it is small, the rate grows.

        client:  y <- y - eta_k g;   eta_0 = lr
                 eta_k = min(gamma ||y_k - y_{k-1}|| / (2 ||g(y_k) - g(y_{k-1})||), (1 + delta t_{k-1})^(1/2) eta_{k-1})
                 t_k = eta_k / eta_{k-1}, t_0 = 1;   both g of eta_k on the batch of step k
        server:  FedAvg

    Args:
        gamma: factor on the inverse of the local smoothness; infinity trusts growth alone.
        delta: how fast the rate may grow; 0 never lets it.

    Limits:
        delta = 0 and gamma = infinity gives FedAvg.
        With one step a round it is FedAvg.

    Example:
        >>> delta_sgd()
        Algorithm(local_optimizer=AutoStep(gamma=2.0, delta=0.1))

    References:
        Kim et al., Adaptive federated learning with auto-tuned clients, ICLR 2024.

    Note:
        eta_0, 0.2 in the paper, is the run's rate. Both gradients of a rate are taken without corrections and decay, so
        a step takes one more than in the paper. Clients with longer steps count for more, which FedNova's weights would
        undo for steps of equal lengths only.
    """
    return Algorithm(local_optimizer=AutoStep(gamma, delta))
