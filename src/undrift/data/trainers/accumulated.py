"""Gradient accumulation: a step's batch in parts, of which one at a time takes memory for its activations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undrift.core.model.precision import autocast


class Parts(NamedTuple):
    """The batch of a step: a number for each of its examples, and the parts that pass through the model."""

    examples: Tensor
    parts: list[Any]


@dataclass(frozen=True)
class CollateParts:
    """Makes a step's batch of its examples, so many in a part."""

    collate: Callable[[list[Any]], Any]
    size: int

    def __call__(self, examples: list[Any]) -> Parts:
        """The batch of some examples; its last part may be short."""
        split = [examples[i : i + self.size] for i in range(0, len(examples), self.size)]
        return Parts(torch.arange(len(examples)), [self.collate(own) for own in split])


def accumulate(share: Callable[[Any], Tensor], parts: Sequence[Any], parameters: Sequence[Tensor]) -> Tensor:
    """The sum of the parts' shares in a loss; its gradient is computed part by part, before the sum is returned.

    Args:
        share: the share of a part in the loss.
        parts: of the batch.
        parameters: what the gradient is for.
    """
    if not torch.is_grad_enabled():
        return torch.stack([share(part) for part in parts]).sum()
    total: Tensor = _Accumulate.apply(share, parts, *parameters)  # type: ignore[no-untyped-call]
    return total


class _Accumulate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, share: Callable[[Any], Tensor], parts: Sequence[Any], *parameters: Tensor) -> Tensor:
        total, slopes = torch.zeros((), device=parameters[0].device), list[Tensor | None]([None] * len(parameters))
        for part in parts:
            with torch.enable_grad():
                loss = share(part)
            with autocast("fp32", loss.device):
                found = torch.autograd.grad(loss, parameters, allow_unused=True)
            total = total + loss.detach()
            pairs = zip(slopes, found, strict=True)
            slopes = [new if old is None else old if new is None else old + new for old, new in pairs]
        ctx.slopes = slopes
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *(None if x is None else x * slope.to(x.dtype) for x in ctx.slopes))
