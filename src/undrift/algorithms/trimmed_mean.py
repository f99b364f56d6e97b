"""Coordinate-wise trimmed mean."""

from undrift.blocks import TrimmedMean
from undrift.core.method.algorithm import Algorithm


def trimmed_mean(f: float = 0.1) -> Algorithm:
    """Trimmed mean: every coordinate of the update is a mean without its extremes.

    Use it where at most f uploads of a cohort may be arbitrary and more of the honest ones should count than in a
    median. Not where no bound on f is known, nor with secure aggregation: the server holds every upload.

    Up to f bad uploads cannot move a coordinate beyond the honest ones, and more of the honest ones are averaged than
    in a median.

        server:  w_j <- w_j + the mean over i of delta_ij without the f largest and the f smallest

    Args:
        f: how many uploads may be bad: a whole number, or a share of the cohort below 1/2, rounded up; 0 trims none.

    Limits:
        f = 0 gives equal weights.
        f of half the cohort or more gives the median.
        Equal uploads give that upload.

    Example:
        >>> trimmed_mean()
        Algorithm(aggregation=TrimmedMean(f=0.1))

    References:
        Yin et al., Byzantine-robust distributed learning: towards optimal statistical rates, ICML 2018.

    Note:
        A cohort of m <= 2f uploads trims (m - 1) // 2 on each side instead of f: the run continues, with the median.
        All clients count equally: an attacker can lie about its size. Running statistics are averaged without a robust
        rule, so prefer GroupNorm where clients are not trusted.
    """
    return Algorithm(aggregation=TrimmedMean(f))
