"""FedGPS."""

from undrift.blocks import OthersPath, Uniform
from undrift.core.method.algorithm import Algorithm


def fedgps(rho: float = 0.5) -> Algorithm:
    """FedGPS, its path: perturb along the other clients' last movement, at one gradient per step.

    Use it where FedLESAM fits and each client's own direction dominates what it last received. Not where clients rarely
    share a round: without its own part the direction is the mean of all.

    A client already follows its own loss; the gradient at a point uphill on the others' losses leads to where these are
    flat, too. The point is known before the round.

        client:  offset = -rho (m d - delta_i)/||m d - delta_i||, constant in the round;   g is taken at w + offset
                 delta_i is its own displacement if it took part in the last round, else 0
        server:  d <- 1/m sum_i delta_i;   w <- w + d

    Args:
        rho: the radius; 0 gives FedAvg with equal weights.

    Limits:
        rho = 0 gives FedAvg with equal weights.
        The first round is that of FedAvg.
        With one client every round is that of FedAvg.

    Example:
        >>> fedgps()
        Algorithm(perturbation=OthersPath(rho=0.5), aggregation=Uniform())

    References:
        Yang et al., FedGPS: statistical rectification against data heterogeneity in federated learning, NeurIPS 2025.

    Note:
        Only the half of the method that acts on gradients: the other half trains on a surrogate data set, which the
        released code does not contain. Its code weighs clients by examples and takes a client's part away with equal
        weights; here both are equal, so that exactly the mean of the others is left.
    """
    return Algorithm(perturbation=OthersPath(rho), aggregation=Uniform())
