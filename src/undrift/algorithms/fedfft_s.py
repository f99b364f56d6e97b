"""FedFFT-S."""

from undrift.blocks import SAM, Filters, Scaffold, Uniform, high_pass
from undrift.core.method.algorithm import Algorithm


def fedfft_s(r: float = 0.01, rho: float = 0.1) -> Algorithm:
    """FedFFT-S: FedFFT with the control variates of SCAFFOLD.

    Use it where SCAFFOLD fits and computation is to spare: clients take part often and keep a control variate each. Not
    for cross-device settings or slow clients: variates go stale, and every step takes two gradients.

    The filter makes the perturbations agree, the variates the gradients.

        client:  offset = H_r(rho g1/||g1||);   g <- g(w + offset) - c_i + c
        server:  SCAFFOLD

    Args:
        r: share of the spectrum removed; 0 gives FedGAMMA.
        rho: the radius before the filter; 0 gives SCAFFOLD.

    Limits:
        r = 0 gives FedGAMMA.
        rho = 0 gives SCAFFOLD.

    Example:
        >>> fedfft_s().drift
        Scaffold()

    References:
        FedFFT, spectral filtering of sharpness-aware perturbations, Algorithm 3, corrected.

    Note:
        The published algorithm is wrong in four places: the local sign (+c_i - c, which diverges exponentially),
        the sum without 1/m, the variates added whole instead of by their change, and epochs where steps are meant.
    """
    return Algorithm(
        perturbation=SAM(rho),
        spectral=Filters(perturbation=high_pass(r)),
        drift=Scaffold(),
        aggregation=Uniform(),
    )
