"""Displacements that take fewer bytes on the wire.

`undrift.core.records.short_vector` is the form in which they travel. A node that trains several clients sends the sum
of their uploads instead, which is dense.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, frexp, isfinite, ldexp
from typing import Annotated, NamedTuple

import torch

from undrift.core import End, Release, Start, Sums, Vector
from undrift.core.records.packed_sum import BLOCK
from undrift.util.naming.ranges import Range


class Unsent(NamedTuple):
    """What a client has not sent of its displacements."""

    e: Vector


@dataclass
class _Rest:
    """What was not sent before this visit, and after it."""

    e: Vector


@dataclass(frozen=True)
class TopK(Release[None, Unsent, None, None, _Rest]):
    """client:  v = delta_i + e_i;   uploads u = the k d entries of v with the largest magnitude;   e_i <- v - u

    So that the sum of what a client sent, and what it still keeps, is the sum of its displacements.

    Args:
        k: share of the d entries that is sent, rounded up; 1 sends all.
    """

    k: Annotated[float, Range("a share above 0, at most 1", lambda x: 0 < x <= 1)] = 0.01

    @property
    def traffic(self) -> float:
        """A value and two bytes for its position."""
        return min(1, 1.5 * self.k)

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that read displacements or slopes."""
        for slot, block in others.items():
            if getattr(block, "uses", Sums.NONE):
                return (
                    f"sends the largest entries of several rounds, and {slot}={block!r} needs the displacements "
                    "themselves; use quantized, or leave one of them out"
                )
        return ""

    def begin(self, sent: None, kept: Unsent, start: Start) -> _Rest:
        """What was not sent before."""
        return _Rest(kept.e)

    def release(self, delta: Vector, state: _Rest, end: End) -> Vector:
        """Split into what is sent and what is kept."""
        state.e = delta.add_(state.e).clone()
        largest = delta.abs().topk(ceil(self.k * len(delta)), sorted=False).indices
        state.e[largest] = 0
        return delta.sub_(state.e)

    def finish(self, state: _Rest, end: End) -> tuple[None, Unsent]:
        """Keep what was not sent."""
        return None, Unsent(state.e)


@dataclass(frozen=True)
class Quantized(Release):
    """client:  uploads u = s floor(delta_i / s + z), z uniform in [0, 1);   s = 2^e, one for every 8192 entries

    e is the smallest exponent with max |delta_i| <= (2^(bits - 1) - 1) s, -60 at least, where exact sums end. The mean
    of u is delta_i. All steps are powers of two, so that partial sums of such uploads are shorter, too.

    Args:
        bits: of a number, its sign included.
    """

    bits: Annotated[int, Range("a whole number from 2 to 8", lambda x: x in range(2, 9))] = 8

    @property
    def traffic(self) -> float:
        """The bits of a number, beside the 32 of a model's."""
        return self.bits / 32

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """Round at random to multiples of the step, up or down, so that the mean is exact."""
        random, most = end.random("quantize"), 2 ** (self.bits - 1) - 1
        host, least = delta.cpu(), max(2.0**-60, torch.finfo(delta.dtype).tiny)
        for here in torch.split(host, BLOCK):
            largest = float(here.abs().max())
            drawn = torch.rand(len(here), generator=random, dtype=torch.float64)
            if largest and isfinite(largest):  # the gate rejects what is not finite
                step = max(least, step_for(largest, most))
                here.copy_(drawn.add_(here.double() / step).floor_().clamp_(-most, most).mul_(step))
        return host.to(delta.device)


def step_for(largest: float, most: int) -> float:
    """The smallest power of two of which `most` multiples reach the largest value.

    Example:
        >>> step_for(127.0, 127), step_for(128.0, 127)
        (1.0, 2.0)
    """
    fraction, exponent = frexp(largest / most)
    return ldexp(1.0, exponent - (fraction == 0.5))
