"""FedSCAM."""

from typing import Any

from undrift.blocks import ByScore, Dampened, ScoredSAM
from undrift.core.method.algorithm import Algorithm


def fedscam(
    rho: float = 0.05,
    alpha: float = 1.0,
    kappa: float = 0.5,
    gamma: float = 1.0,
    beta: float = 0.8,
    clusters: int = 0,
    damp: float = 0.5,
    batches: int = 3,
    length: int = 256,
) -> Algorithm:
    """FedSCAM: a radius and a weight for each client, from how steep its loss is and how much it agrees with others.

    Use it where gradient norms differ so much between clients that one radius does not fit all; it needs no client
    state. Not for slow clients: every step takes two gradients, and scoring a client takes a few more per round.

    One radius for all disturbs clients with large gradients, whose updates then disturb the model. Before training, a
    client evaluates gradients on its first batches: steep clients get a smaller radius and weight, those whose first
    step agrees with the last global one count as less steep and weigh more.

        client:  h_i = mean over the first batches of ||g(w0)||
                 v_i = -g(w0 + rho/2/(1 + alpha h_i) U(g(w0))), on the first batch
                 c_i = cos(Proj(v_i), u), 0 in round 0;   steepness_i = h_i max(0, 1 - kappa c_i)
                 SAM with radius rho_i = rho / (1 + alpha steepness_i)
        server:  S_i = n_i / (1 + gamma steepness_i) max(0, 1 + beta c_i);   n_i if all S_i are zero
                 w <- w + sum_i S_i m_i delta_i / sum_i S_i;   u <- Proj(U(the step of w))

    Proj is a count sketch of `length` numbers, the same on all nodes. m_i is 1 unless clusters > 0: then the sketched
    displacements are put into clusters by k-means, and of every pair in a cluster that points apart the shorter one
    has m_i = damp.

    Args:
        rho: the largest radius; 0 gives FedSCAM-WA.
        alpha: how much steepness lowers the radius; 0 gives all clients the radius rho.
        kappa: how much agreement lowers the steepness; 0 switches it off.
        gamma: how much steepness lowers the weight; 0 switches it off.
        beta: how much agreement raises the weight; 0 switches it off.
        clusters: how many clusters the dampening has, 2 where it is used; 0 switches it off.
        damp: the factor on a dampened displacement; 1 switches it off.
        batches: how many batches the score is computed on, one epoch at most.
        length: how many numbers a sketch has.

    Limits:
        alpha = gamma = beta = 0 gives FedSAM weighted by examples.
        rho = gamma = beta = 0 gives FedAvg.
        rho = 0 gives FedSCAM-WA.
        gamma = beta = 0 gives FedSCAM-SAM.

    Example:
        >>> fedscam().aggregation
        ByScore(kappa=0.5, batches=3, length=256, gamma=1.0, beta=0.8)

    References:
        Rahil, Ahmad and Asif, FedSCAM: scam-resistant SAM for robust federated optimization in heterogeneous
        environments, 2025.

    Note:
        The paper gives neither alpha, kappa, clusters nor damp, and we know of no code; these defaults are ours. Its
        sweeps prefer gamma = 1, beta = 0 and rho = 0.1, on single runs. "Projected gradient or one-step update" leaves
        the sign of v_i open: u goes downhill, so v_i must; the gradient itself would invert every agreement. What the
        text calls a variance of gradients, h_i, is a mean norm in its formula. The pseudo-code dampens before it
        weighs, so the factor acts on the displacement and the weights keep their sum. The radius of v_i uses h_i
        itself. The scores take batches + 1 gradients a round (batches without a radius) and leave running statistics
        alone; training sees the same batches again. With clusters the server needs each upload separately. Running
        statistics are averaged by S_i, and stay as they are in a round in which all S_i are zero.
    """
    shared: dict[str, Any] = {"kappa": kappa, "batches": batches, "length": length}
    return Algorithm(
        perturbation=ScoredSAM(rho, alpha, **shared),
        aggregation=Dampened(gamma, beta, clusters, damp, **shared) if clusters else ByScore(gamma, beta, **shared),
    )
