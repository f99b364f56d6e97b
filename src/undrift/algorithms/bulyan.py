"""Bulyan."""

from undrift.blocks import Bulyan
from undrift.core.method.algorithm import Algorithm


def bulyan(f: float = 0.1) -> Algorithm:
    """Bulyan: Krum selects uploads, then every coordinate is a trimmed mean of the selected ones.

    Use it where up to f of at least 4f + 3 uploads may be arbitrary, even in a few coordinates only. Not for small
    cohorts or many attackers: fewer than seven uploads have no protection, and only m - 4f values of each coordinate
    are averaged.

    In many dimensions an upload can be near the others as a whole and far off in one coordinate. Bulyan trims each
    coordinate of the uploads that Krum selects.

        server:  m - 2f times: Krum chooses one of the m' uploads left, by max(1, m' - f - 2) neighbours
                 w_j <- w_j + the mean of the m - 4f chosen delta_ij nearest to their median; ties to the first chosen

    Args:
        f: how many uploads may be bad: a whole number, or a share of the cohort below 1/2, rounded up; 0 trusts all.

    Limits:
        f = 0 gives equal weights.
        Equal uploads give that upload.

    Example:
        >>> bulyan()
        Algorithm(aggregation=Bulyan(f=0.1))

    References:
        El Mhamdi et al., The hidden vulnerability of distributed learning in Byzantium, ICML 2018.

    Note:
        Bulyan needs m >= 4f + 3 uploads. A smaller cohort takes the largest f it allows, (m - 3) // 4 or 0: the run
        continues, but fewer than seven uploads have no protection at all. As in the paper m - 2f are chosen, one by
        one, with new scores each time; AggregaThor chooses m - 2f - 2 and averages in every turn, Flower chooses all in
        one turn. When few are left, two nearest neighbours have equal scores and the lower client goes first, so that
        renumbering the clients may change the result. All clients count equally. Running statistics are averaged
        without a robust rule, so prefer GroupNorm where clients are not trusted.
    """
    return Algorithm(aggregation=Bulyan(f))
