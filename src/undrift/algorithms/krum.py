"""Krum."""

from undrift.blocks import Krum
from undrift.core.method.algorithm import Algorithm


def krum(f: float = 0.1) -> Algorithm:
    """Krum: the server applies the one upload that is closest to its neighbours.

    Use it as a baseline of robust aggregation, where up to f of at least 2f + 3 uploads may be arbitrary. Not under
    label skew: it applies the upload of one client and discards all others.

    Honest uploads are close together; a bad one that is close enough to be chosen does little harm. The others are
    discarded.

        server:  s_i = the sum of the m - f - 2 smallest ||delta_i - delta_j||^2 over j != i
                 w <- w + delta_i of the smallest s_i; ties go to the lowest client

    Args:
        f: how many uploads may be bad: a whole number, or a share of the cohort below 1/2, rounded up; 0 trusts all.

    Limits:
        The result is exactly one of the uploads.
        Equal uploads give that upload.

    Example:
        >>> krum()
        Algorithm(aggregation=Krum(f=0.1, q=1))

    References:
        Blanchard et al., Machine learning with adversaries: Byzantine tolerant gradient descent, NeurIPS 2017.

    Note:
        Krum needs m >= 2f + 3 uploads. A smaller cohort takes the largest f it allows, (m - 3) // 2 or 0, and counts
        at least one neighbour: the run continues, and of one or two uploads the lowest client's is taken. Under label
        skew honest updates differ a lot and the choice of one of them is noisy: report the accuracy of honest
        minorities, too, and prefer Multi-Krum. All clients count equally. Running statistics are averaged without a
        robust rule, so prefer GroupNorm where clients are not trusted. In the smoke benchmark (20 clients, Dirichlet
        0.3, 10 rounds) Krum reaches 45 % where FedAvg has 63 % and Multi-Krum 58 %: one client's update stands for all.
    """
    return Algorithm(aggregation=Krum(f))
