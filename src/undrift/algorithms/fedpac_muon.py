"""FedPAC with Muon."""

from undrift.blocks import MixedMuon, Uniform
from undrift.core.method.algorithm import Algorithm


def fedpac_muon(gamma: float = 0.5) -> Algorithm:
    """FedPAC with Muon: clients align their preconditioners by the server's mean, and correct steps by its direction.

    Use it to compare with the paper of this name under its own settings: with Muon it is FedMuon without the factor on
    the step. With SOAP it is fedpac-soap. Not with Sophia, whose state is not kept here.

    Preconditioners that differ between clients make the mean step a poor one. The server averages their states, and
    every step is mixed with the last global direction.

        client:  m the server's;   y <- y - lr ((1 - gamma) Muon's step + gamma d/K)
        server:  m <- 1/m sum_i m_i;   d <- -1/m sum_i delta_i / lr;   w <- w + 1/m sum_i delta_i

    Args:
        gamma: share of the global direction, beta in the paper; 0 leaves Muon from averaged buffers.

    Limits:
        It is FedMuon with alpha = 1 and beta1 = 0.95.
        gamma = 0 is Muon on the clients from averaged buffers.

    Example:
        >>> fedpac_muon().local_optimizer.alpha
        1.0

    References:
        Liu et al., Taming preconditioner drift: unlocking the potential of second-order optimizers for federated
        learning on non-IID data, 2026.

    Note:
        The same formulas as FedMuon, from the same authors. Not the FedPAC of 2023, which combines heads.
    """
    return Algorithm(local_optimizer=MixedMuon(gamma, 1.0, 0.95), aggregation=Uniform())
