"""FedSCAM's radii alone."""

from undrift.blocks import ScoredSAM
from undrift.core.method.algorithm import Algorithm


def fedscam_sam(
    rho: float = 0.05, alpha: float = 1.0, kappa: float = 0.5, batches: int = 3, length: int = 256
) -> Algorithm:
    """FedSCAM-SAM: FedSAM with FedSCAM's radius for each client, weighted by examples.

    Use it as an ablation of FedSCAM, with its radii and weights by examples. Not for slow clients: every step takes two
    gradients, and scoring a client takes a few more per round.

    Steep clients get a smaller radius, those whose first step agrees with the last global one a larger.

        client:  h_i = mean over the first batches of ||g(w0)||
                 v_i = -g(w0 + rho/2/(1 + alpha h_i) U(g(w0))), on the first batch
                 c_i = cos(Proj(v_i), u), 0 in round 0;   steepness_i = h_i max(0, 1 - kappa c_i)
                 SAM with radius rho_i = rho / (1 + alpha steepness_i)
        server:  w <- w + sum_i n_i delta_i / sum_i n_i;   u <- Proj(U(the step of w))

    Args:
        rho: the largest radius; 0 gives FedAvg.
        alpha: how much steepness lowers the radius; 0 gives all clients the radius rho.
        kappa: how much agreement lowers the steepness; 0 switches it off.
        batches: how many batches the score is computed on, one epoch at most.
        length: how many numbers a sketch has.

    Limits:
        alpha = 0 gives FedSAM weighted by examples.
        rho = 0 gives FedAvg.
        FedSCAM with gamma = beta = 0 is this.

    Example:
        >>> fedscam_sam()
        Algorithm(perturbation=ScoredSAM(kappa=0.5, batches=3, length=256, rho=0.05, alpha=1.0))

    References:
        Rahil, Ahmad and Asif, FedSCAM: scam-resistant SAM for robust federated optimization in heterogeneous
        environments, 2025, ablation.

    Note:
        As FedSCAM: alpha and kappa are not in the paper, and v_i is a step downhill.
    """
    return Algorithm(perturbation=ScoredSAM(rho, alpha, kappa=kappa, batches=batches, length=length))
