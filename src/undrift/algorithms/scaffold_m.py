"""SCAFFOLD-M."""

from undrift.blocks import ScaffoldInside, ServerMomentum, Uniform
from undrift.core.method.algorithm import Algorithm


def scaffold_m(beta: float = 0.1) -> Algorithm:
    """SCAFFOLD-M: SCAFFOLD whose corrected steps are mixed with the last global direction.

    Use it where SCAFFOLD helps and gradients are noisy or cohorts small: the momentum smooths what the variates
    correct. Not where a client is seen once or rarely, as SCAFFOLD, nor for short runs: the momentum builds up slowly.

    Momentum alone already frees FedAvg of assumptions about heterogeneity; with variates the rate of convergence does
    not depend on the share of clients that take part in the same way.

        client:  g <- beta (g - c_i + c) + (1 - beta) m;   at the end c_i <- mean_k g_k, before the correction
        server:  c <- c + 1/N sum_i (new c_i - old c_i);   m <- -1/m sum_i delta_i / (steps_i lr)
                 w <- w + 1/m sum_i delta_i

    Args:
        beta: share of the client's own corrected gradient; 1 gives SCAFFOLD.

    Limits:
        beta = 1 gives SCAFFOLD.
        With variates kept at zero it is FedCM.

    Example:
        >>> scaffold_m().momentum
        ServerMomentum(a=0.1)

    References:
        Cheng et al., Momentum benefits non-IID federated learning simply and provably, ICLR 2024.

    Note:
        The paper's FedAvg-M is FedCM with another name. Variates are means of gradients and travel: SCAFFOLD's
        shortcut, which derives them from the displacements, would take the momentum for a gradient. No code of the
        authors was found.
    """
    return Algorithm(drift=ScaffoldInside(), momentum=ServerMomentum(beta), aggregation=Uniform())
