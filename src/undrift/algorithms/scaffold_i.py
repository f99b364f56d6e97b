"""SCAFFOLD, option I."""

from undrift.blocks import ScaffoldI, Uniform
from undrift.core.method.algorithm import Algorithm


def scaffold_i() -> Algorithm:
    """SCAFFOLD I: SCAFFOLD whose control variates are full gradients at the received model.

    Use it in place of SCAFFOLD where local training is long and one more pass over a client's data per round is
    affordable. Not where upload is the bottleneck or clients are seen rarely: it uploads two models, and control
    variates go stale.

    The variate of option II is the mean over a path and inherits the drift of that path. A gradient over all of a
    client's data costs one more pass a round and an upload of two models, and has less variance.

        client:  g <- g - c_i + c;   at the end c_i <- grad F_i(w0), over all its data
        server:  c <- c + 1/N sum_i (new c_i - old c_i);   w <- w + 1/m sum_i delta_i

    Limits:
        With variates kept at zero it is FedAvg with equal weights.
        With one full-batch step a round it is SCAFFOLD (option II).
        With equal clients and full participation the correction is zero.

    Example:
        >>> scaffold_i()
        Algorithm(drift=ScaffoldI(), aggregation=Uniform())

    References:
        Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning, ICML 2020 (option I).

    Note:
        The variates start at zero; ports start them from random networks or from the model itself. Weight decay stays
        out of them, as in our option II, though the paper's F_i would hold it: it is the same for all clients. A
        perturbation or a contrast acts on the steps and not on the full gradient; a filter on gradients and clipping
        act on both. Batch normalisation takes the statistics of each batch in the extra pass.
    """
    return Algorithm(drift=ScaffoldI(), aggregation=Uniform())
