"""FedAvg."""

from undrift.core.method.algorithm import Algorithm


def fedavg() -> Algorithm:
    """FedAvg: local SGD from the received model, then the average by examples.

    Use it as the baseline of every comparison, and where clients' data are alike or local training is short. Not where
    labels differ strongly between clients and local training is long: nothing corrects the drift.

    Clients with different data pull the model in different directions, and the average suffers: this is the client
    drift that the other methods reduce.

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
