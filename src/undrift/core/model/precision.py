"""The precision of a client's passes: float32, or mixed with bfloat16 or float16, and the loss scale of float16.

The model's vector, the gradient and everything that is computed from them stay float32. Only the passes through the
model run in lower precision.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from undrift.core.model.flat_model import Vector

Precision = Literal["fp32", "bf16", "fp16"]
"""What the passes of local training compute in."""

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

START, TARGET, INTERVAL = 10, 12, 100
"""The first loss scale and the largest entry of a scaled gradient to aim at, as powers of two, the latter with sixteen
times that below the largest float16; and after how many finite gradients in a row the scale doubles."""

_LEAST, _MOST = -14, 24


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context of one loss call; float32 switches off an autocast around the whole run.

    Autocast keeps the low-precision copy of a parameter until its outermost context ends. Here the parameters' values
    change underneath, so a copy that is kept would be that of an earlier step: nothing is kept.

    Args:
        precision: of the passes.
        device: where the model is.
    """
    if precision == "fp32":
        outer = torch.is_autocast_enabled(device.type)
        return torch.autocast(device.type, enabled=False, cache_enabled=False) if outer else nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[precision], cache_enabled=False)


def full(x: Tensor) -> Tensor:
    """A tensor in float32 if it is bfloat16 or float16, else as it is.

    Args:
        x: the tensor.
    """
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class LossScale:
    """The factor on a loss that keeps the small entries of a float16 gradient from becoming zero.

    A visit starts with 2^10. Its first finite gradient tells how large gradients are, and from then on the scale is the
    power of two with which the largest entry of that gradient would lie just below 2^12. A gradient that is not finite
    becomes zero and halves the scale; a hundred finite ones in a row double it. The scale is a tensor: no step waits
    for the device.

    Args:
        device: where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self._powers = torch.tensor([2.0**k for k in range(_LEAST, _MOST + 1)], device=device)
        self._power = torch.full((), START, dtype=torch.int64, device=device)
        self._row = torch.zeros((), dtype=torch.int64, device=device)
        self._fitted = torch.zeros((), dtype=torch.bool, device=device)
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def scale(self) -> Tensor:
        """The factor for the next loss."""
        return self._powers[self._power - _LEAST]

    def begin(self) -> None:
        """Continue with the next step: `finite` is whether all of its gradients so far are."""
        self.finite = torch.ones_like(self.finite)

    def unscale(self, gradient: Vector) -> Vector:
        """The gradient of the loss itself, in place; zero if it is not finite.

        Args:
            gradient: that of the loss times `scale`.
        """
        largest = torch.linalg.vector_norm(gradient, float("inf"))
        finite = torch.isfinite(largest)
        gradient.div_(self.scale).masked_fill_(~finite, 0)
        _, size = torch.frexp(torch.where(finite, largest, 1.0))
        fitted = torch.where(largest > 0, self._power + TARGET - size, self._power)
        self._row = torch.where(finite & (self._row < INTERVAL), self._row + 1, 0)
        going = torch.where(self._fitted, self._power + (self._row == INTERVAL).to(torch.int64), fitted)
        self._power = torch.where(finite, going, self._power - 1).clamp(_LEAST, _MOST)
        self._fitted = self._fitted | (finite & (largest > 0))
        self.skipped = self.skipped + (~finite).to(torch.int64)
        self.finite = self.finite & finite
        return gradient
