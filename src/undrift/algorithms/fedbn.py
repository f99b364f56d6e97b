"""FedBN."""

from undrift.blocks import PrivateNorms
from undrift.core.method.algorithm import Algorithm


def fedbn(kinds: tuple[str, ...] = ("*BatchNorm*",)) -> Algorithm:
    """FedBN: FedAvg, except that batch normalisation stays with each client.

    Use it where inputs differ between clients (scanners, cameras) and the model has batch normalisation. Not for other
    models, where it is FedAvg, nor for clients that never train: they have the norms of the initial model.

    Clients whose inputs differ (scanners, cameras) have different statistics; each normalises with its own.

        client:  start from (w without norms, own norms);   w <- w - lr g(w);   at the end keep the norms
        server:  w <- w + sum_i n_i/n delta_i, without norms

    A norm comprises its scale, its shift and its running statistics.

    Args:
        kinds: patterns of the class names of the private layers; ("*Norm*",) includes group and layer norm; () keeps
            only the running statistics private.

    Limits:
        A model without batch norm gives FedAvg, so does one with group norm unless kinds names it.
        One client is local training.

    Example:
        >>> fedbn()
        Algorithm(personalization=PrivateNorms(kinds=('*BatchNorm*',)))

    References:
        Li et al., FedBN: federated learning on non-IID features via local batch normalization, ICLR 2021.

    Note:
        Layers are chosen by the class of their module. The authors' code and several ports search for "bn" in names and
        so share the norms of shortcuts. Weights are by examples; the authors average uniformly over all clients. There
        is no global model: a client that never took part, and a test of the global model, have the norms of the
        initial model, since nothing of a client's norms is sent.
    """
    return Algorithm(personalization=PrivateNorms(kinds))
