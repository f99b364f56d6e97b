"""FedAvg."""

from undrift.core.algorithm import Algorithm


def fedavg() -> Algorithm:
    """FedAvg: local SGD from the received model, then the average by examples.

    The baseline. Clients with different data pull the average apart: this is the drift that the other methods
    tame.

        client:  w <- w - lr g
        server:  w <- w + sum_i n_i delta_i / sum_i n_i

    Limits:
        With equal numbers of examples it is FedAvg with equal weights.
        With one client a round it is SGD on that client's data.

    Example:
        >>> fedavg()
        Algorithm()

    References:
        McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017.

    Note:
        Some texts divide by the examples of all clients; we divide by those of the cohort, since the model would
        otherwise shrink under partial participation.
    """
    return Algorithm()
