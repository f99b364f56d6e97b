"""GradFilter-FedDyn."""

from undrift.algorithms.feddyn import feddyn
from undrift.algorithms.specgrad import specgrad
from undrift.core.method.algorithm import Algorithm


def gradfilter_feddyn(r: float = 0.01, mu: float = 0.1) -> Algorithm:
    """GradFilter-FedDyn: FedDyn whose data gradient loses its low frequencies, tensor by tensor.

    Use it as a control for FedFFT-D: it filters the gradient instead of the perturbation. Not for cross-device
    settings: it keeps FedDyn's dual on each client, which goes stale.

    The control experiment of FedFFT: if low frequencies are where clients disagree, is it enough to take them out of
    the gradient? It is SpecGradFilter on top of FedDyn.

        client:  g <- H_r(g) - h_i + mu (w - w0);   at the end h_i <- h_i - mu delta_i
        server:  h <- h - mu/N sum_i delta_i;   w <- w + 1/m sum_i delta_i - h/mu

    Args:
        r: share of the spectrum removed; 0 gives FedDyn.
        mu: strength of the proximal term; it cannot be 0.

    Limits:
        With r = 0 it is FedDyn.
        Without weight decay the low frequencies of every tensor keep their initial values.

    Example:
        >>> gradfilter_feddyn().spectral
        Filters(perturbation=None, gradient=high_pass(r=0.01))

    References:
        FedFFT, appendix E.6 (an ablation); SpecGradFilter, spectral filtering of client gradients.

    Note:
        The appendix does not state r or the order of flattening: these are FedFFT's r, each tensor by itself. It
        reports no gain over FedDyn, while SpecGradFilter reports a large one with r = 0.05, averaging and fewer rounds.
    """
    return specgrad(r, feddyn(mu))
