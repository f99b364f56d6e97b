"""FedFFT-D."""

from undrift.blocks import SAM, FedDyn, Filters, Uniform, high_pass
from undrift.core.method.algorithm import Algorithm


def fedfft_d(r: float = 0.01, rho: float = 0.1, mu: float = 0.1) -> Algorithm:
    """FedFFT-D: FedFFT with the duals of FedDyn.

    Use it where FedDyn fits and computation is to spare: clients take part often and keep a dual each, and traffic is
    FedAvg's. Not for cross-device settings or slow clients: duals go stale, and every step takes two gradients.

    The strongest of the three in the paper: the filter makes the perturbations agree, the duals the optima.

        client:  offset = H_r(rho g1/||g1||);   g <- g(w + offset) - h_i + mu (w - w0);   h_i <- h_i - mu delta_i
        server:  FedDyn

    Args:
        r: share of the spectrum removed; 0 gives FedSAM-D, which is FedSpeed.
        rho: the radius before the filter; 0 gives FedDyn.
        mu: strength of the proximal term, 1/beta in the paper.

    Limits:
        r = 0 gives FedSpeed.
        rho = 0 gives FedDyn.

    Example:
        >>> fedfft_d().drift
        FedDyn(mu=0.1)

    References:
        FedFFT, spectral filtering of sharpness-aware perturbations, Algorithm 2, corrected.

    Note:
        The published algorithm is wrong in four places: the signs of the dual in step and update feed back on each
        other, the sum lacks 1/m, the server's dual is divided by m instead of N, and it never reaches the model.
    """
    return Algorithm(
        perturbation=SAM(rho),
        spectral=Filters(perturbation=high_pass(r)),
        drift=FedDyn(mu),
        aggregation=Uniform(),
    )
