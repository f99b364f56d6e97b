"""Multi-Krum."""

from undrift.blocks import Krum
from undrift.core.method.algorithm import Algorithm


def multi_krum(f: float = 0.1, q: int | None = None) -> Algorithm:
    """Multi-Krum: the mean of the uploads that are closest to their neighbours.

    Use it where up to f of at least 2f + 3 uploads may be arbitrary and several honest ones should be averaged. Not
    under strong label skew: honest clients with rare labels are dropped first, and the server holds every upload.

    Krum discards all uploads but one; averaging the best of them keeps its protection and most of the speed of a
    mean.

        server:  s_i = the sum of the m - f - 2 smallest ||delta_i - delta_j||^2 over j != i
                 w <- w + the mean of the q delta_i with the smallest s_i; ties go to the lowest client

    Args:
        f: how many uploads may be bad: a whole number, or a share of the cohort below 1/2, rounded up; 0 trusts all.
        q: how many are averaged, at most m - f - 2; None averages as many, 1 gives Krum.

    Limits:
        q = 1 gives Krum.
        Equal uploads give that upload.

    Example:
        >>> multi_krum()
        Algorithm(aggregation=Krum(f=0.1, q=None))

    References:
        Blanchard et al., Machine learning with adversaries: Byzantine tolerant gradient descent, NeurIPS 2017.

    Note:
        Implementations average m - f - 2 (AggregaThor), m - f (Ditto) or any number, weighted by sizes (Flower); we
        average m - f - 2, unweighted, the range for which the proof holds, and at least one: with f = 0 two uploads are
        still dropped. A cohort of m < 2f + 3 takes the largest f it allows, (m - 3) // 2 or 0. Under label skew honest
        minorities are dropped first: report their accuracy, too. Running statistics are averaged without a robust rule,
        so prefer GroupNorm where clients are not trusted.
    """
    return Algorithm(aggregation=Krum(f, q))
