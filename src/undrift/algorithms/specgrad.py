"""SpecGradFilter."""

from dataclasses import replace

from undrift.algorithms.uniform import uniform
from undrift.blocks import Filter, Filters, high_pass
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Spectral


def specgrad(r: float = 0.05, host: Algorithm | None = None, filter: Filter | None = None) -> Algorithm:
    """SpecGradFilter: any method whose data gradient loses its low frequencies, tensor by tensor.

    Use it to filter the gradients of any method at one gradient per step, without state or traffic. Not with a large r:
    without weight decay the low frequencies keep their initial values, so what they encode is never learned.

    The paper's reason is that clients' gradients differ most in the slow components along a flattened layer. Measured
    here, clients agree there as much as elsewhere; the filter helps because it removes a direction that all inputs of a
    layer share (docs/evidence/findings/mean-part.md).

        client:  g <- H_r(g), the data gradient only;   then the filtered method's step
        server:  that of the filtered method

    Args:
        r: share of the spectrum removed; in the paper similar results from 0.01 to 0.1; 0 gives the method unfiltered.
        host: the method to filter, whose gradients are not filtered yet; None is FedAvg with equal weights.
        filter: a filter instead of high_pass(r), such as lap_d(window) or gd(sigma).

    Limits:
        r = 0 gives the method unfiltered.
        Without weight decay the low frequencies of every tensor keep their initial values.

    Example:
        >>> specgrad(0.05)
        Algorithm(spectral=Filters(perturbation=None, gradient=high_pass(r=0.05)), aggregation=Uniform())

    References:
        SpecGradFilter, spectral filtering of client gradients.

    Note:
        The filter is an orthogonal projection, so less divergence after it is not evidence by itself. For vision
        transformers the paper filters the patch embedding only: high_pass(r, scope=("patch_embed*",)). LAP-D and GD
        are compositions, "uniform + lap-d(25)" and "uniform + gd(7.5)". Their kernels are in a supplement that was not
        available; a window of 1.2067/r and a sigma of 0.3748/r match the cut-off of high_pass(r), and
        moving_average(r) and gaussian(r) choose them so.
    """
    host = uniform() if host is None else host
    found = Filters() if type(host.spectral) is Spectral else host.spectral
    if not isinstance(found, Filters) or found.gradient is not None:
        if r == 0 and filter is None:
            return host
        raise ValueError(
            f"specgrad: host must not change its gradients already, got spectral={found!r}; use that host as it is, or "
            "one without it"
        )
    return replace(host, spectral=Filters(found.perturbation, filter or high_pass(r)))
