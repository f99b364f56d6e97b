"""Norm clipping."""

from undrift.blocks import MedianClip, NormClip, QuantileClip, Uniform
from undrift.core.method.algorithm import Algorithm


def norm_clip(c: float | None = None, q: float | None = None, lr: float = 0.2) -> Algorithm:
    """Norm clipping: no upload moves the model further than a given length.

    Use it as a cheap bound on what one client can do to the model, for instance by scaling its upload up. Not against
    many clients that attack together: each of them still moves the mean by up to c/m.

    The simplest guard against uploads that were scaled up, such as a replaced model: directions stay, lengths are cut.

        client:  delta_i <- min(1, c / ||delta_i||) delta_i
        server:  w <- w + 1/m sum_i delta_i
                 c fixed;   or c = median_i ||delta_i||;
                 or, after each round, c <- c exp(-lr (x - q)), x the share of clients with ||delta_i|| <= c

    Args:
        c: the longest update left unclipped; None takes the median length of each cohort, infinity gives equal weights.
        q: the quantile of the lengths that c follows from its first value on, such as 0.5; None keeps c fixed.
        lr: how fast c follows; 0 keeps it fixed.

    Limits:
        c = infinity gives equal weights.
        q with lr = 0 gives the fixed c.
        Equal uploads not longer than c give that upload.

    Example:
        >>> norm_clip()
        Algorithm(aggregation=MedianClip())
        >>> norm_clip(2.0)
        Algorithm(release=NormClip(c=2.0), aggregation=Uniform())
        >>> norm_clip(0.1, q=0.5)
        Algorithm(release=QuantileClip(c=0.1, q=0.5, lr=0.2), aggregation=Uniform())

    References:
        Sun et al., Can you really backdoor federated learning?, 2019.
        Andrew, Thakkar et al., Differentially private learning with adaptive clipping, NeurIPS 2021 (the quantile).
        Li et al., Ditto: fair and robust federated learning through personalization, ICML 2021 (the median).

    Note:
        With c, clients clip, and the server rejects an upload that is longer, so that a dishonest client moves the mean
        no further; only sums are needed, and any rule may follow: "fedavg + norm-clip(2.0)". The median is taken at the
        server over every upload of a round. All clients count equally. Clipping bounds the harm of a bad upload but
        removes none of it; it is the only method here whose result changes when all updates are shifted.
    """
    if c is None and q is not None:
        raise ValueError(f"norm clipping: q={q} needs c=, the length to start from, for example c=0.1; got none")
    if c is None:
        return Algorithm(aggregation=MedianClip())
    return Algorithm(release=NormClip(c) if q is None else QuantileClip(c, q, lr), aggregation=Uniform())
