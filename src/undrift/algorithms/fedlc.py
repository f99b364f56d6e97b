"""FedLC."""

from undrift.blocks import CalibratedLogits
from undrift.core.method.algorithm import Algorithm


def fedlc(tau: float = 1.0) -> Algorithm:
    """FedLC: logits are calibrated in training by how many examples of each class a client has.

    Use it for classifiers under label skew: clients and traffic stay those of FedAvg, and it combines with every other
    method. Not where labels are balanced on each client: the margins are then equal and change nothing.

    A client without a class pushes its logit down on every example, and one with few pushes it down a little less. A
    margin that grows as a class becomes rare takes the reason away, and a missing class leaves the softmax.

        client:  loss <- mean_x CE(f(x) - tau n^(-1/4), y), n_c the client's examples of class c
        server:  FedAvg

    Args:
        tau: strength of the calibration; 0 gives FedAvg.

    Limits:
        tau = 0 gives FedAvg.
        With equally many examples of every class on each client it is FedAvg.

    Example:
        >>> fedlc(0.1)
        Algorithm(objective=CalibratedLogits(tau=0.1))

    References:
        Zhang et al., Federated learning with label distribution skew via logits calibration, ICML 2022.

    Note:
        n are counts, not frequencies. A class without examples leaves the softmax, as it does in released code by a
        division by zero, which at tau = 0 gives NaN there; here tau = 0 is FedAvg. Later repositories use tau = 0.1.
    """
    return Algorithm(objective=CalibratedLogits(tau))
