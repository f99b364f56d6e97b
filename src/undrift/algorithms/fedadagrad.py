"""FedAdagrad."""

from undrift.blocks import Adagrad
from undrift.core.method.algorithm import Algorithm


def fedadagrad(lr: float = 0.1, beta1: float = 0.0, tau: float = 1e-3) -> Algorithm:
    """FedAdagrad: the mean displacement is a gradient for Adagrad on the server.

    Use it where updates are sparse and the server's learning rate should decay by itself. Not for long runs of dense
    networks: squares are summed and never forgotten, so steps keep shrinking.

    Every coordinate's rate falls with the sum of its squares, so those that rarely move keep long steps and the others
    slow down.

        server:  D = sum_i n_i delta_i / sum_i n_i
                 m <- beta1 m - (1 - beta1) D;   v <- v + D^2
                 w <- w - lr m / (sqrt(v) + tau), element by element

    Args:
        lr: server learning rate.
        beta1: momentum; 0 switches it off, as in the paper.
        tau: keeps the root away from zero; tune it from 1e-5 to 1e-1. A large tau switches adaptation off.

    Limits:
        With beta1 = 0 and lr = 2 tau, both large, it is FedAvg: v stays near tau^2.
        With the same D in every round and beta1 = 0, the t-th step is lr sign(D) / sqrt(t), up to tau.
        A round that moves nothing leaves the model where it is.

    Example:
        >>> fedadagrad()
        Algorithm(server_optimizer=Adagrad(lr=0.1, beta1=0.0, tau=0.001))

    References:
        Reddi et al., Adaptive federated optimization, ICLR 2021.

    Note:
        v starts at tau^2 and the root has tau added outside; a common port takes sqrt(v + eps). Weights are by
        examples, as in the experiments; the paper's algorithm box averages equally. The first step of every coordinate
        is about lr, however small D: choose it by the size of the weights, 0.01 to 0.1 for networks.
    """
    return Algorithm(server_optimizer=Adagrad(lr=lr, beta1=beta1, tau=tau))
