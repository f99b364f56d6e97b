"""Exact, associative sums: the same bits for any number of workers, any grouping and any order.

A number is cut into a multiple of 2^-10 and a remainder that is a multiple of 2^-60. Both parts are held in double
precision, in which sums of such multiples are exact while they stay below 2^43 (the gate sees to it), so addition is
associative and commutative, and only the last conversion rounds. Own code: no library sums tensors reproducibly.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from undrift.core.records.packed_sum import BLOCK, Blocks, PackedSum, add_parts, pack_blocks, unpack_blocks

LIMIT = 2.0**40
"""The largest sum of magnitudes, per element, that is surely exact."""

LONG = 1 << 25
"""Sums of so many elements or more are kept packed: a quarter of the memory, for ten times the time of an addition."""

_COARSE = 1.5 * 2.0**42  # adding and subtracting it rounds to a multiple of 2^-10
_FINE = 1.5 * 2.0**-8  # ... of 2^-60
_CARRY = 4  # additions between two carries; two sums of fine parts stay exact below 2^-7, sixteen additions
_CHUNK = 1 << 15  # elements at a time: the temporaries stay in the processor's cache
_PIECE = 1 << 17  # elements of a long sum that are unpacked at a time


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

    @classmethod
    def of(cls, coarse: Tensor, fine: Tensor) -> "ExactSum":
        """A sum of its two parts, to which additions write; `sound` checks whether they can be those of a sum."""
        total = cls(0)
        total.coarse, total.fine = coarse, fine
        return total

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.coarse)

    def pack(self, mask: Tensor | None = None) -> PackedSum:
        """The sum in its form on the wire; without what lies outside of a mask of its length, if that is zero."""
        if mask is None or len(mask) != self.size or any(x.cpu()[~mask].any() for x in (self.coarse, self.fine)):
            return PackedSum.of(self.coarse, self.fine)
        return PackedSum.of(self.coarse.cpu()[mask], self.fine.cpu()[mask])

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
        if len(x) > 1 and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
            self._add_on_host(x, weight)
        elif len(x) > 1:
            self._add_on_device(x, weight)
        elif len(x) == 1:  # the same in Python's floats, which are doubles, too
            number = float(x) * weight
            rounded = number + _COARSE - _COARSE
            self.coarse.add_(rounded)
            self.fine.add_(number - rounded + _FINE - _FINE)
            if self._pending == 0:
                self.carry()

    def _add_on_host(self, x: Tensor, weight: float) -> None:
        """Add weight * x, as much at a time as fits into the processor's cache.

        NumPy converts and multiplies in one pass.
        """
        size = len(x)
        given, coarse, fine = x.detach().numpy(), self.coarse.numpy(), self.fine.numpy()
        rest, whole = np.empty((2, min(_CHUNK, size)))
        with np.errstate(all="ignore"):  # the gate has checked that all is finite
            for start in range(0, size, _CHUNK):
                end = min(start + _CHUNK, size)
                c, f, r, w = coarse[start:end], fine[start:end], rest[: end - start], whole[: end - start]
                np.multiply(given[start:end], weight, out=r, dtype=np.float64)
                np.add(r, _COARSE, out=w)
                np.subtract(w, _COARSE, out=w)
                np.add(c, w, out=c)
                np.subtract(r, w, out=r)
                np.add(r, _FINE, out=r)
                np.subtract(r, _FINE, out=r)
                np.add(f, r, out=f)
                if self._pending == 0:
                    np.add(f, _COARSE, out=w)
                    np.subtract(w, _COARSE, out=w)
                    np.add(c, w, out=c)
                    np.subtract(f, w, out=f)

    def _add_on_device(self, x: Tensor, weight: float) -> None:
        """Add weight * x, all at once."""
        rest = x.to(torch.float64, copy=True).mul_(weight)
        whole = torch.add(rest, _COARSE).sub_(_COARSE)
        self.coarse.add_(whole)
        self.fine.add_(rest.sub_(whole).add_(_FINE).sub_(_FINE))
        if self._pending == 0:
            _carry(self.coarse, self.fine, whole)

    def merge(self, other: "AnySum") -> None:
        """Add another sum, piece by piece: one that is packed is never unpacked as a whole."""
        length = _CHUNK if isinstance(other, ExactSum) else BLOCK
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

    def value(self, dtype: torch.dtype = torch.float64, divisor: float = 1.0) -> Tensor:
        """The sum over a divisor: see `add_parts`."""
        return add_parts(self.parts(), self.size, dtype, divisor, self.coarse.device)


class LongSum:
    """The exact sum of long vectors on the host, held packed, of which a piece at a time is unpacked to be added to.

    Args:
        size: their length.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pieces: list[Blocks] = []  # never written to, so that sums may share them; none before the first addition

    @classmethod
    def of(cls, size: int, parts: Iterable[tuple[Tensor, Tensor]]) -> "LongSum":
        """A sum of its coarse and fine parts, in pieces of `_PIECE` elements."""
        total = cls(size)
        total._pieces = [pack_blocks(coarse, fine) for coarse, fine in parts]
        return total

    def pack(self, mask: Tensor | None = None) -> PackedSum:
        """The sum in its form on the wire; without what lies outside of a mask of its length, if that is zero."""
        if mask is not None and len(mask) == self.size:
            cut = zip(self.parts(_PIECE), mask.split(_PIECE), strict=True)
            chosen = [(c[m], f[m]) if not (c[~m].any() or f[~m].any()) else None for (c, f), m in cut]
            if None not in chosen:
                coarse, fine = (torch.cat(each) for each in zip(*filter(None, chosen), strict=True))
                return PackedSum.of(coarse, fine)
        return PackedSum.join(self.size, self._opened())

    def parts(self, length: int = BLOCK) -> Iterator[tuple[Tensor, Tensor]]:
        """The coarse and the fine part, so many elements at a time: a multiple of `BLOCK`, at most `_PIECE`."""
        for blocks, count in zip(self._opened(), _lengths(self.size), strict=True):
            yield from unpack_blocks(blocks, count, length)

    def sound(self, most: float) -> bool:
        """Whether the parts are what additions of finite numbers, `most` in all, can give."""
        return all(_multiples(c, 2.0**-10, most) for c, _ in self.parts())

    def add(self, x: Tensor, weight: float = 1.0) -> None:
        """Add weight * x, rounded once to a multiple of 2^-60."""
        x = x.detach().cpu()
        for i, (each, (coarse, fine)) in enumerate(zip(x.split(_PIECE), self.parts(_PIECE), strict=True)):
            piece = ExactSum.of(coarse, fine)
            piece.add(each, weight)
            self._pieces[i] = pack_blocks(piece.coarse, piece.fine)

    def merge(self, other: "AnySum") -> None:
        """Add another sum, whose memory is shared as long as this one is zero."""
        if other.size != self.size:
            raise ValueError(f"merge: sums of {self.size} and {other.size} elements")
        if not self._pieces and not isinstance(other, ExactSum):
            self._pieces = list(other._opened() if isinstance(other, LongSum) else other.split(_PIECE))
            return
        theirs = other.parts() if isinstance(other, PackedSum) else other.parts(BLOCK)
        for i, (coarse, fine) in enumerate(self.parts(_PIECE)):
            piece = ExactSum.of(coarse, fine)
            for (c, f), (more, rest) in zip(piece.parts(BLOCK), theirs, strict=False):
                c.add_(more.cpu())
                f.add_(rest.cpu())
            self._pieces[i] = pack_blocks(piece.coarse, piece.fine)

    def value(self, dtype: torch.dtype = torch.float64, divisor: float = 1.0) -> Tensor:
        """The sum over a divisor: see `add_parts`."""
        return add_parts(self.parts(), self.size, dtype, divisor)

    def _opened(self) -> list[Blocks]:
        """The pieces, of zeros before the first addition."""
        if not self._pieces:
            zeros = torch.zeros(_PIECE, dtype=torch.float64)
            self._pieces = [pack_blocks(zeros[:count], zeros[:count]) for count in _lengths(self.size)]
        return self._pieces


AnySum = ExactSum | LongSum | PackedSum
"""An exact sum in one of its three forms."""


class NamedSums:
    """Exact sums by name, each opened by its first addition; those from the wire stay packed until one is added to."""

    def __init__(self) -> None:
        self.sums: dict[str, AnySum] = {}

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

    def value(self, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
        """One of them, rounded once to double precision, and then to a dtype."""
        return self.sums[name].value(dtype)

    def norm(self, name: str) -> float:
        """The norm of one of them, computed piece by piece: no vector is made."""
        total = self.sums[name]
        parts = total.parts() if isinstance(total, PackedSum) else total.parts(BLOCK)
        return sqrt(sum(float(torch.linalg.vector_norm(coarse + fine)) ** 2 for coarse, fine in parts))

    def number(self, name: str) -> float:
        """One that holds a single number; 0 if nothing was added."""
        return float(self.sums[name].value()) if name in self.sums else 0.0

    def flatten(self, packed: bool = True, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Their forms on the wire, by name.

        Args:
            packed: the short form, for networks; without it the two parts as they are, for memory that is shared, but
                for long sums.
            mask: what travels of sums of its length, in the short form.
        """
        out: dict[str, Tensor] = {}
        for name, total in self.sums.items():
            if packed or total.size >= LONG:
                form = total if isinstance(total, PackedSum) else total.pack(mask if packed else None)
                out[f"{name}/sum"] = form.data
            else:
                plain = self._open(name, total.size)
                assert isinstance(plain, ExactSum)
                plain.carry()
                out |= {f"{name}/coarse": plain.coarse, f"{name}/fine": plain.fine}
        return out

    def restore(
        self,
        tensors: Mapping[str, Tensor],
        sizes: Mapping[str, int],
        packed: bool = True,
        mask: Tensor | None = None,
    ) -> None:
        """Take those named from what `flatten` returned elsewhere; KeyError if one is not there.

        Args:
            tensors: what it returned.
            sizes: names and lengths of the sums.
            packed: the form that is expected.
            mask: what travels of sums of its length.
        """
        for name, size in sizes.items():
            if packed or size >= LONG:
                found = PackedSum(tensors[f"{name}/sum"])
                cut = packed and mask is not None and len(mask) == size != found.size
                self.sums[name] = spread(found, mask) if cut and mask is not None else found
            else:
                self.sums[name] = ExactSum.of(tensors[f"{name}/coarse"], tensors[f"{name}/fine"])

    def _open(self, name: str, size: int, device: torch.device | None = None) -> ExactSum | LongSum:
        """One of them, ready to be added to."""
        found = self.sums.get(name)
        if found is None or isinstance(found, PackedSum):
            host = device is None or device.type == "cpu"
            self.sums[name] = opened = LongSum(size) if size >= LONG and host else ExactSum(size, device)
            if found is not None:
                opened.merge(found)
            return opened
        return found


def spread(packed: PackedSum, mask: Tensor) -> AnySum:
    """The sum that was packed with a mask; any other bytes as they are, whose length is checked later."""
    count = int(mask.count_nonzero())
    if packed.data.dtype != torch.uint8 or not packed.complete(count) or not packed.sound(LIMIT):
        return packed
    total = ExactSum(count)
    total.merge(packed)
    if len(mask) < LONG:
        return ExactSum.of(*_place(mask, total.coarse, total.fine))
    masks = mask.split(_PIECE)
    counts = [int(m.count_nonzero()) for m in masks]
    pieces = zip(masks, total.coarse.split(counts), total.fine.split(counts), strict=True)
    return LongSum.of(len(mask), (_place(*piece) for piece in pieces))


def _place(mask: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors that hold the values where the mask is set, and zero elsewhere."""
    coarse, fine = (torch.zeros(len(mask), dtype=torch.float64).masked_scatter_(mask, x) for x in values)
    return coarse, fine


def _lengths(size: int) -> list[int]:
    """The lengths of the pieces of a long sum."""
    return [min(_PIECE, size - start) for start in range(0, size, _PIECE)]


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
