"""FedPer with FedFFT's perturbation."""

from undrift.blocks import SAM, Filters, Private, Uniform, high_pass
from undrift.blocks.personalization.part import Part
from undrift.core.method.algorithm import Algorithm


def fedper_fft(r: float = 0.01, rho: float = 0.1, head: Part = "last") -> Algorithm:
    """FedPer + FFT-SAM: shared body, private head, and a perturbation that loses its low frequencies on the body.

    Use it where FedPer fits and computation is to spare: only the shared body is filtered. Not where one global model
    is needed, nor for slow clients: every step takes two gradients.

    Clients' perturbations disagree in the slow components along a flattened layer; only what is shared has to agree.

        client:  start from (B, H_i);   offset = rho g1/||g1||, body and head in one norm;   H_r on the body's part only
                 w <- w - lr g(w + offset), body and head;   at the end keep H_i
        server:  B <- B + 1/m sum_i delta_i, on the body

    Args:
        r: share of the spectrum removed; 0 gives FedPer with SAM.
        rho: the radius before the filter; 0 gives FedPer with equal weights.
        head: the private tensors: "last" for those of the last module, or name patterns such as ("head.*",).

    Limits:
        head=() gives FedFFT.
        rho=0 gives FedPer with equal weights, r=0 FedPer with SAM.
        head="all" is purely local SAM.

    Example:
        >>> fedper_fft().personalization
        Private(names='last', tuned=0)

    References:
        FedFFT, spectral filtering of sharpness-aware perturbations (experiments with personal heads).

    Note:
        The paper does not state whether the head is filtered; its argument, agreement within the shared representation,
        implies that it is not.
    """
    return Algorithm(
        perturbation=SAM(rho),
        spectral=Filters(perturbation=high_pass(r)),
        aggregation=Uniform(),
        personalization=Private(head),
    )
