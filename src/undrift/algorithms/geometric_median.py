"""Geometric median (RFA)."""

from undrift.blocks import GeometricMedian
from undrift.core.method.algorithm import Algorithm


def geometric_median(passes: int = 4, floor: float = 1e-5, by_examples: bool = True) -> Algorithm:
    """Geometric median: the update with the smallest sum of distances to all uploads.

    Use it where arbitrary uploads have less than half of the weight; the number of attackers need not be known. Not
    with secure aggregation, nor by examples where clients may lie about their size: the server holds every upload and
    trusts n_i.

    A mean minimises squared distances, so one far upload moves it anywhere; distances themselves tolerate up to half of
    the weight. Known as RFA, robust federated averaging.

        server:  z = sum_i a_i delta_i / sum_i a_i;   some times: z <- sum_i b_i delta_i / sum_i b_i,
                 b_i = a_i / max(floor, ||z - delta_i||);   w <- w + z

    Args:
        passes: Weiszfeld's steps, fewer once the sum of distances falls by less than 1e-6 of itself; 0 gives the mean.
        floor: the smallest divisor, which smooths the minimum.
        by_examples: whether a_i = n_i; False counts all clients equally.

    Limits:
        passes = 0 gives FedAvg, and with by_examples = False equal weights.
        floor to infinity gives the same.
        Equal uploads give that upload.

    Example:
        >>> geometric_median()
        Algorithm(aggregation=GeometricMedian(passes=4, floor=1e-05, by_examples=True))

    References:
        Pillutla et al., Robust aggregation for federated learning, IEEE Transactions on Signal Processing 2022.

    Note:
        The defaults are from the paper's code: four passes are deliberately inexact, and a far outlier still shows (3.6
        instead of 3 for updates 1, 2, 3, 4 and 100); about ten are near the limit. Weights by examples only protect if
        sizes can be trusted: an attacker that claims half of all examples determines the median. Use by_examples=False
        where you cannot rule this out. The released code needs a secure sum for each pass; here the server holds the
        uploads of the round.
    """
    return Algorithm(aggregation=GeometricMedian(passes, floor, by_examples))
