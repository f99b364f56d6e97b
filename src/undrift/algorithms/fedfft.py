"""FedFFT."""

from undrift.blocks import SAM, Filters, Uniform, high_pass
from undrift.core.method.algorithm import Algorithm


def fedfft(r: float = 0.01, rho: float = 0.1) -> Algorithm:
    """FedFFT: FedSAM whose perturbation loses its low frequencies, tensor by tensor.

    Use it where FedSAM fits and clients' data differ: the filter needs no state and no traffic. Not for slow clients:
    every step takes two gradients and filters every tensor.

    Clients' perturbations disagree most in the slow components along a flattened layer; without them the clients seek
    flatness in the same directions.

        client:  offset = H_r(rho g1/||g1||), not rescaled;   g is taken at w + offset
        server:  w <- w + 1/m sum_i delta_i

    Args:
        r: share of the spectrum removed, safe from 0.005 to 0.04; 0 gives FedSAM.
        rho: the radius before the filter; 0 gives FedAvg with equal weights.

    Limits:
        r = 0 gives FedSAM.
        rho = 0 gives FedAvg with equal weights.

    Example:
        >>> fedfft().spectral
        Filters(perturbation=high_pass(r=0.01), gradient=None)

    References:
        FedFFT, spectral filtering of sharpness-aware perturbations, Algorithm 1.

    Note:
        Line 11 of the published algorithm lacks the gradient symbol.
    """
    return Algorithm(perturbation=SAM(rho), spectral=Filters(perturbation=high_pass(r)), aggregation=Uniform())
