"""FedMuon with control variates."""

from undrift.blocks import CorrectedMuon, Uniform
from undrift.core.method.algorithm import Algorithm


def fedmuon_cv(a: float = 0.9, iterations: int = 5) -> Algorithm:
    """FedMuon with control variates: every step is a polar factor of the momentum, corrected as in SCAFFOLD.

    Use it where clients shall take Muon's steps and take part often: the variates remove the bias of averaging them.
    Not where a client is seen once or rarely, nor at SGD's rates: a step has the length of the rate.

    The mean of polar factors is not the polar factor of the mean, so clients that take such steps do not meet at the
    optimum. A variate inside the factor makes each client's step that of the global momentum.

        client:  m <- (1 - a) m + a g;   y <- y - lr P(m - c_i + c), P each tensor's polar factor;   at the end c_i <- m
        server:  c <- c + 1/N sum_i (new c_i - old c_i);   w <- w + 1/N sum_i delta_i

    Args:
        a: share of the gradient in the momentum; 1 has no memory.
        iterations: steps of Newton-Schulz; 0 computes polar factors exactly.

    Limits:
        With variates kept at zero it is local Muon with a server rate of m/N.
        With one client the correction is zero in every round.
        On tensors of one element it takes sign steps: every step has the length of the rate.

    Example:
        >>> fedmuon_cv()
        Algorithm(local_optimizer=CorrectedMuon(a=0.9, iterations=5), aggregation=Uniform())

    References:
        Takezawa et al., FedMuon: federated learning with bias-corrected LMO-based optimization, ICLR
        2026.

    Note:
        One of two methods of this name; the other is fedmuon. After a reproduction; the authors' code was not found.
        Clients that are absent count as not moved, so the server's step is m/N of the mean. For the same idea in other
        optimizers write "local-muon + scaffold-inside" or "local-adam + scaffold-inside", whose moments are those of
        the corrected gradient.
    """
    return Algorithm(local_optimizer=CorrectedMuon(a, iterations), aggregation=Uniform())
