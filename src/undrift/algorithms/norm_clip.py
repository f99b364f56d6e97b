"""Norm clipping."""

from undrift.blocks.aggregation.clip import clipping
from undrift.core.method.algorithm import Algorithm


def norm_clip(c: float | None = None, q: float | None = None, lr: float = 0.2) -> Algorithm:
    """Norm clipping: no upload moves the model further than a given length.

    Use it as a cheap bound on what one client can do to the model, for instance by scaling its upload up. Not against
    many clients that attack together: each of them still moves the mean by up to c/m.

    The simplest guard against uploads that were scaled up, such as a replaced model: directions stay, lengths are cut.

        server:  w <- w + 1/m sum_i min(1, c / ||delta_i||) delta_i
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
        Algorithm(aggregation=NormClip(c=2.0))
        >>> norm_clip(0.1, q=0.5)
        Algorithm(aggregation=QuantileClip(c=0.1, q=0.5, lr=0.2))

    References:
        Sun et al., Can you really backdoor federated learning?, 2019.
        Andrew, Thakkar et al., Differentially private learning with adaptive clipping, NeurIPS 2021 (the quantile).
        Li et al., Ditto: fair and robust federated learning through personalization, ICML 2021 (the median).

    Note:
        All uploads are clipped at the server, so that dishonest clients are clipped, too; papers often clip on the
        clients. A fixed c needs only sums and works with any number of clients; the median and the quantile hold every
        upload of a round. All clients count equally. Clipping bounds the harm of a bad upload but removes none of it;
        it is the only rule here whose result changes when all updates are shifted. With a fixed c a clipped upload's
        running statistics count less by the same factor.
    """
    return Algorithm(aggregation=clipping(c, q, lr))
