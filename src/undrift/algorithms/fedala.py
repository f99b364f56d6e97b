"""FedALA."""

from undrift.blocks import AdaptiveAggregation
from undrift.core.method.algorithm import Algorithm


def fedala(
    rate: float = 1.0, sample: float = 0.8, layers: int = 1, threshold: float = 0.01, tuned: int = 0
) -> Algorithm:
    """FedALA: before training, a client mixes its last model into the received one, element by element.

    Use it where each client takes part often and has a model of its own to keep: how much of it is learned on the
    client's data. Not for cross-device settings or slow clients: a client keeps its last model, and learning the
    mixture takes additional epochs.

    The received model helps a client in some directions and undoes its own progress in others; the weights, learned on
    its own data, tell them apart.

        client:  in the top layers  w = w_i + W (w0 - w_i);   W <- W - rate g(w) (w0 - w_i), cut to [0, 1], some epochs
                 below  w = w0;   then  w <- w - lr g(w), as FedAvg;   at the end keep w_i = w and W
        server:  w <- sum_i n_i/n w_i

    W starts at 1. A client's first round has no w_i and learns nothing; in its second, epochs are repeated until the
    mean losses of the last 10 have a standard deviation below the threshold, 100 at most; later there is one epoch.

    Args:
        rate: step size of W; 0 keeps W at 1 and gives FedAvg.
        sample: share of a client's examples that an epoch of W uses, in (0, 1].
        layers: how many modules, from the last, are mixed.
        threshold: on the standard deviation of the losses.
        tuned: epochs in which a client's head alone is trained before it is evaluated; 0 evaluates it as it is.

    Limits:
        rate=0 gives FedAvg.
        W kept at 0 in all layers is local training.

    Example:
        >>> fedala().personalization
        AdaptiveAggregation(rate=1.0, sample=0.8, layers=1, threshold=0.01, tuned=0)

    References:
        Zhang et al., FedALA: adaptive local aggregation for personalized federated learning, AAAI 2023.

    Note:
        The code counts tensors where the paper counts layers (p = 2 tensors is the last linear layer); its threshold is
        0.1, the paper's 0.01. It finds the first round by a difference that sums to zero; here a counter is kept. Its
        loss of an epoch is that of the last batch; here the mean. It mixes on all clients in every round, here those
        that take part do, which is the same if all do. Its sample is a contiguous slice at a random place; here it is
        the start of a random order, in whole batches, the same in all epochs of a round. The authors evaluate after
        they have learned W once more; here a client is evaluated with the newest global model, its last model and the W
        of its last round. FedFSA compares it after one round of tuning the head: tuned=10. With batch norm set
        local.buffers = "keep": else the mixture is evaluated with running statistics averaged over all clients.
    """
    return Algorithm(personalization=AdaptiveAggregation(rate, sample, layers, threshold, tuned))
