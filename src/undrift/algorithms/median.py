"""Coordinate-wise median."""

from undrift.blocks import CoordinateMedian
from undrift.core.method.algorithm import Algorithm


def median() -> Algorithm:
    """Median: every coordinate of the update is the median over the clients.

    Use it where fewer than half of a cohort's uploads may be arbitrary. Not under strong label skew or with secure
    aggregation: the median favours the majority in each coordinate, and the server holds every upload.

    With fewer than half of the uploads arbitrary, each coordinate is still between honest ones.

        server:  w_j <- w_j + median_i delta_ij; of an even number, the mean of the two in the middle

    Limits:
        One or two clients give equal weights.
        Equal uploads give that upload.

    Example:
        >>> median()
        Algorithm(aggregation=CoordinateMedian())

    References:
        Yin et al., Byzantine-robust distributed learning: towards optimal statistical rates, ICML 2018.

    Note:
        All clients count equally: an attacker can lie about its size. Uploads that are not finite never enter the
        median. Under label skew honest updates differ a lot, and a median favours the majority in each coordinate.
        Running statistics are averaged without a robust rule, so prefer GroupNorm where clients are not trusted.
    """
    return Algorithm(aggregation=CoordinateMedian())
