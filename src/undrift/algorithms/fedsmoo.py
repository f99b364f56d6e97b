"""FedSMOO."""

from undrift.blocks import Consensus, FedDyn, Uniform
from undrift.core.method.algorithm import Algorithm


def fedsmoo(rho: float = 0.1, mu: float = 0.1) -> Algorithm:
    """FedSMOO: duals make the clients' models agree, and a second kind of duals their perturbations.

    Use it where each client takes part often and the global loss should be flat, not only each client's own. Not where
    traffic, memory or computation is scarce: two models both ways, two vectors of client state, two gradients per step.

    A client's own gradient leads to where its own loss is sharp. A dual on the perturbation steers it towards one that
    all clients share, so that the method seeks flatness of the global loss, while FedDyn corrects the drift.

        client:  each step:  offset = rho U(g(w) - d_i - s);   d_i <- d_i + offset - s
                             g <- g(w + offset) - h_i + mu (w - w0)
                 at the end h_i <- h_i - mu delta_i;   d_i is uploaded and kept
        server:  s <- rho U(1/m sum_i d_i)
                 h <- h - mu/N sum_i delta_i;   w <- w + 1/m sum_i delta_i - h/mu

    U scales to length one. All duals and s start at zero; s has the length rho or is zero.

    Args:
        rho: the radius; 0 gives FedDyn.
        mu: strength of the proximal term, 1/beta in the paper: 0.1 for CIFAR-10, 0.01 for CIFAR-100; it cannot be 0.

    Limits:
        rho = 0 gives FedDyn.
        A client's first step, with d_i and s at zero, is that of FedSpeed.

    Example:
        >>> fedsmoo()
        Algorithm(perturbation=Consensus(rho=0.1), drift=FedDyn(mu=0.1), aggregation=Uniform())

    References:
        Sun et al., Dynamic regularized sharpness aware minimization in federated learning: approaching global
        consistency and smooth landscape, ICML 2023.

    Note:
        Two public versions by the authors have opposite signs of s. The maintained one, followed here, has the mean of
        the d_i of the clients that took part; perturbations then go uphill on the global loss. The older one, with
        minus the mean over all clients, sends them downhill. The paper has a client upload d_i less its last offset;
        the maintained code uploads d_i, as here. A textbook ADMM would add s where g - d_i - s subtracts it; both
        codes subtract. g - d_i - s takes displacements from a gradient, so the balance between them depends on the
        scale of the loss. A client uploads two models and keeps two. The FedSMOO baseline in FedFSA's code gives every
        tensor the first slice of the dual: its figures are not FedSMOO's.
    """
    return Algorithm(perturbation=Consensus(rho), drift=FedDyn(mu), aggregation=Uniform())
