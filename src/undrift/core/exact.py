"""Exact, associative sums: the same bits for any number of workers, any grouping and any order.

A number is cut into a multiple of 2^-10 and a remainder that is a multiple of 2^-60. Both parts are held in double
precision, in which sums of such multiples are exact while they stay below 2^43 (the gate sees to it), so addition is
associative and commutative, and only the last conversion rounds. Own code: no library sums tensors reproducibly.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from undrift.core.packed import BLOCK, PackedSum

LIMIT = 2.0**40
"""The largest sum of magnitudes, per element, that is surely exact."""

_COARSE = 1.5 * 2.0**42  # adding and subtracting it rounds to a multiple of 2^-10
_FINE = 1.5 * 2.0**-8  # ... of 2^-60
_CARRY = 4  # additions between two carries; two sums of fine parts stay exact below 2^-7, sixteen additions
_CHUNK = 1 << 15  # elements at a time: the temporaries stay in the processor's cache


class ExactSum:
    """The exact sum of tensors of one shape.

    Args:
        size: their length.
        device: where it is made, one that has float64; None is the CPU.
    """

    def __init__(self, size: int, device: torch.device | None = None) -> None:
        self.coarse = torch.zeros(size, dtype=torch.float64, device=device)
        self.fine = torch.zeros_like(self.coarse)
        self._pending = 0

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.coarse)

    def pack(self) -> PackedSum:
        """The sum in its form on the wire."""
        return PackedSum.of(self.coarse, self.fine)

    def parts(self, length: int = _CHUNK) -> Iterator[tuple[Tensor, Tensor]]:
        """The coarse and the fine part, as views of so many elements each; none of an empty sum."""
        if self.size:
            yield from zip(torch.split(self.coarse, length), torch.split(self.fine, length), strict=True)

    def sound(self, most: float) -> bool:
        """Whether the parts are what additions of finite numbers, `most` in all, can give."""
        return all(_multiples(c, 2.0**-10, most) and _multiples(f, 2.0**-60, 2.0**-8) for c, f in self.parts())

    def add(self, x: Tensor, weight: float = 1.0) -> None:
        """Add weight * x, rounded once to a multiple of 2^-60."""
        self._pending = (self._pending + 1) % _CARRY
        if len(x) > 1:
            self._add_chunks(x, weight)
        elif len(x) == 1:  # the same in Python's floats, which are doubles, too
            number = float(x) * weight
            rounded = number + _COARSE - _COARSE
            self.coarse.add_(rounded)
            self.fine.add_(number - rounded + _FINE - _FINE)
            if self._pending == 0:
                self.carry()

    def _add_chunks(self, x: Tensor, weight: float) -> None:
        """Add weight * x, as much at a time as fits into the processor's cache."""
        size = _CHUNK if x.device.type == "cpu" else len(x)
        whole = torch.empty(min(size, len(x)), dtype=torch.float64, device=x.device)
        rest = torch.empty_like(whole)
        chunks = zip(torch.split(x, size), torch.split(self.coarse, size), torch.split(self.fine, size), strict=True)
        for part, coarse, fine in chunks:
            r, w = rest[: len(part)].copy_(part), whole[: len(part)]
            if weight != 1.0:
                r.mul_(weight)
            torch.add(r, _COARSE, out=w).sub_(_COARSE)
            coarse.add_(w)
            fine.add_(r.sub_(w).add_(_FINE).sub_(_FINE))
            if self._pending == 0:
                _carry(coarse, fine, w)

    def merge(self, other: "ExactSum | PackedSum") -> None:
        """Add another sum, piece by piece: one from the wire is never unpacked as a whole."""
        length = BLOCK if isinstance(other, PackedSum) else _CHUNK
        spare = torch.empty_like(self.fine[:length])
        for (coarse, fine), (more, rest) in zip(self.parts(length), other.parts(), strict=True):
            coarse.add_(more.to(coarse.device))
            fine.add_(rest.to(fine.device))
            _carry(coarse, fine, spare[: len(fine)])
        self._pending = 0

    def carry(self) -> None:
        """Move whole multiples of 2^-10 from the fine part to the coarse one, so that it never grows."""
        spare = torch.empty_like(self.fine[:_CHUNK])
        for coarse, fine in self.parts():
            _carry(coarse, fine, spare[: len(fine)])
        self._pending = 0

    def value(self) -> Tensor:
        """The sum, rounded once to double precision."""
        return self.coarse + self.fine


class NamedSums:
    """Exact sums by name, each opened by its first addition; those from the wire stay packed until one is added to."""

    def __init__(self) -> None:
        self.sums: dict[str, ExactSum | PackedSum] = {}

    def add(self, name: str, x: Tensor, weight: float = 1.0) -> None:
        """Add weight * x to one of them."""
        self._open(name, len(x), x.device).add(x, weight)

    def merge(self, other: "NamedSums") -> None:
        """Add those of other clients."""
        for name, total in other.sums.items():
            self._open(name, total.size).merge(total)

    def home(self) -> None:
        """Move them to the host."""
        for total in self.sums.values():
            if isinstance(total, ExactSum):
                total.coarse, total.fine = total.coarse.cpu(), total.fine.cpu()

    def value(self, name: str) -> Tensor:
        """One of them, rounded once to double precision."""
        return self.sums[name].value()

    def number(self, name: str) -> float:
        """One that holds a single number; 0 if nothing was added."""
        return float(self.sums[name].value()) if name in self.sums else 0.0

    def flatten(self) -> dict[str, Tensor]:
        """Their forms on the wire, by name."""
        packed = ((name, x.pack() if isinstance(x, ExactSum) else x) for name, x in self.sums.items())
        return {f"{name}/sum": x.data for name, x in packed}

    def restore(self, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
        """Take those named from what `flatten` returned elsewhere; KeyError if one is not there."""
        for name in names:
            self.sums[name] = PackedSum(tensors[f"{name}/sum"])

    def _open(self, name: str, size: int, device: torch.device | None = None) -> ExactSum:
        """One of them, ready to be added to."""
        found = self.sums.get(name)
        if not isinstance(found, ExactSum):
            self.sums[name] = opened = ExactSum(size, device)
            if found is not None:
                opened.merge(found)
            return opened
        return found


def _carry(coarse: Tensor, fine: Tensor, spare: Tensor) -> None:
    """Move whole multiples of 2^-10 from one part of a sum to the other."""
    carried = torch.add(fine, _COARSE, out=spare).sub_(_COARSE)
    coarse.add_(carried)
    fine.sub_(carried)


def _multiples(x: Tensor, unit: float, most: float) -> bool:
    """Whether all values are multiples of a unit, a power of two, and not larger than `most`; NaN is not."""
    if len(x) == 0:
        return True
    low, high = torch.aminmax(x)
    units = x / unit
    return -most <= float(low) and float(high) <= most and torch.equal(units, units.round())
