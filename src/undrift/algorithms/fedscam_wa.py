"""FedSCAM's weights alone."""

from undrift.blocks import ByScore
from undrift.core.method.algorithm import Algorithm


def fedscam_wa(
    gamma: float = 1.0, beta: float = 0.8, kappa: float = 0.5, batches: int = 3, length: int = 256
) -> Algorithm:
    """FedSCAM-WA: FedAvg with FedSCAM's weights.

    Use it as an ablation of FedSCAM, with its weights and plain local SGD. Not under strong label skew without FedAvg
    beside it: the paper's own table has it two points below FedAvg there, on CIFAR-10.

    Local SGD as in FedAvg; steep clients weigh less, those whose first step agrees with the last global one more.

        client:  h_i = mean over the first batches of ||g(w0)||;   v_i = -g(w0), on the first batch
                 c_i = cos(Proj(v_i), u), 0 in round 0;   steepness_i = h_i max(0, 1 - kappa c_i)
        server:  S_i = n_i / (1 + gamma steepness_i) max(0, 1 + beta c_i);   n_i if all S_i are zero
                 w <- w + sum_i S_i delta_i / sum_i S_i;   u <- Proj(U(the step of w))

    Args:
        gamma: how much steepness lowers the weight; 0 switches it off.
        beta: how much agreement raises the weight; 0 switches it off.
        kappa: how much agreement lowers the steepness; 0 switches it off.
        batches: how many batches the score is computed on, one epoch at most.
        length: how many numbers a sketch has.

    Limits:
        gamma = beta = 0 gives FedAvg.
        FedSCAM with rho = 0 is this.

    Example:
        >>> fedscam_wa()
        Algorithm(aggregation=ByScore(kappa=0.5, batches=3, length=256, gamma=1.0, beta=0.8))

    References:
        Rahil, Ahmad and Asif, FedSCAM: scam-resistant SAM for robust federated optimization in heterogeneous
        environments, 2025, ablation.

    Note:
        As FedSCAM; without a radius v_i is a plain gradient, so a round takes `batches` more gradients.
        On CIFAR-10 with strong skew the paper's own table has it two points below FedAvg.
    """
    return Algorithm(aggregation=ByScore(gamma, beta, kappa=kappa, batches=batches, length=length))
