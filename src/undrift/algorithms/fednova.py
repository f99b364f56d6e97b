"""FedNova."""

from undrift.blocks import LocalMomentum, Normalized, Proximal
from undrift.core.method.algorithm import Algorithm


def fednova(rho: float = 0.0, mu: float = 0.0) -> Algorithm:
    """FedNova: every displacement is divided by its client's effective number of steps before it is averaged.

    Use it where clients take different numbers of local steps, because they differ in size or speed. Not against label
    skew with equal numbers of steps: without momentum and proximal term it is then FedAvg.

    Clients with more examples take more steps. A plain average then minimises another objective than the one written
    down, in which clients count by examples times steps; dividing by the effective number of steps a_i restores it.

        client:  b <- rho b + g;   w <- w - lr (b + mu (w - w0))
                 a_i = the same recursion on a unit gradient, from zero, in units of lr: a <- a + b - lr mu a
        server:  w <- w + (sum_i p_i a_i) sum_i p_i delta_i / a_i,   p_i = n_i / sum_j n_j
                 with mu > 0 the first factor is sum_i p_i steps_i

    Args:
        rho: momentum of the local steps; 0 switches it off, and a_i is the number of steps. The authors use 0.9.
        mu: strength of a proximal term; 0 switches it off.

    Limits:
        With rho = mu = 0 and equal numbers of steps it is FedAvg.
        With one client a round and mu = 0 it is FedAvg on that client.

    Example:
        >>> fednova(rho=0.9).aggregation
        Normalized(rho=0.9, mu=0.0)

    References:
        Wang et al., Tackling the objective inconsistency problem in heterogeneous federated optimization, NeurIPS 2020.

    Note:
        a_i follows from the recursion itself, so it is right with momentum and proximal term together; the
        authors' optimizer mixes the two counters and adds the proximal term into the momentum. Steps are counted, the
        last short batch and all epochs included, where ports take n_i / B. Momentum starts at zero in every round.
        Weight decay is not part of a_i. Running statistics are averaged by n_i / a_i.
    """
    return Algorithm(momentum=LocalMomentum(rho), objective=Proximal(mu), aggregation=Normalized(rho, mu))
