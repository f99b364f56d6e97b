"""The form of an exact sum on the wire: half of its size in memory or less, exact, and one form for one sum.

A sum is a whole number of units of 2^-60. In every block of `BLOCK` elements the zero bits are dropped with which all
its numbers end, and each number takes as many bytes as the largest of the block needs, in two's complement. A NaN has
no such form. The bytes, little-endian: the number of elements (8 bytes); a shift and a width for every block; then the
blocks, each in planes: the lowest 8, 4, 2 or 1 bytes of all its numbers, those above, and so on.
"""

from collections.abc import Iterator, MutableSequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 8192
"""Elements that share a shift and a width."""

WIDEST = 13
"""The most bytes of a number: with its sign, an exact sum has at most 104 bits."""

_LOW = 50  # bits of the lower part of a number, of a unit of 2^-60; the upper part has a unit of 2^-10
_MASK = (1 << _LOW) - 1
_COUNT = 8  # bytes of the number of elements

Array = np.ndarray[Any, Any]

Blocks = tuple[Array, Array]
"""Consecutive blocks: the shift and the width of each, and the bytes of their numbers."""


class PackedSum:
    """An exact sum in its form on the wire, which is read block by block.

    Args:
        data: the bytes, checked by `complete` and `sound` if they came from elsewhere.
    """

    def __init__(self, data: Tensor) -> None:
        self.data = data

    @classmethod
    def of(cls, coarse: Tensor, fine: Tensor) -> "PackedSum":
        """Pack a sum.

        Args:
            coarse: multiples of 2^-10, below 2^43.
            fine: multiples of 2^-60, below 2^-7.

        Raises:
            ValueError: a number is not finite, or too large.
        """
        return cls.join(len(coarse), [pack_blocks(coarse, fine)])

    @classmethod
    def join(cls, size: int, pieces: MutableSequence[Blocks]) -> "PackedSum":
        """The sum of so many elements whose blocks these are; they become views of its bytes, so that none is twice."""
        out = np.empty(_start(size) + sum(len(data) for _, data in pieces), np.uint8)
        out[:_COUNT] = np.array([size], "<i8").view(np.uint8)
        head, place = _COUNT, _start(size)
        for i, (forms, data) in enumerate(pieces):
            kept = out[head : head + forms.size].reshape(forms.shape), out[place : place + len(data)]
            kept[0][:], kept[1][:] = forms, data
            head, place, pieces[i] = head + forms.size, place + len(data), kept
        return cls(torch.from_numpy(out))

    def split(self, length: int) -> list[Blocks]:
        """Its blocks, so many elements at a time, a multiple of `BLOCK`, as views of its bytes."""
        forms, place, out = self._forms, _start(self.size), []
        for start in range(0, self.size, length):
            some = forms[start // BLOCK : (start + length) // BLOCK]
            count = min(length, self.size - start)
            widths = some[:, 1].astype(np.int64)
            end = place + int(widths.sum()) * BLOCK - int(widths[-1]) * (-count % BLOCK)
            out.append((some, self._array[place:end]))
            place = end
        return out

    @property
    def size(self) -> int:
        """The number of elements that the bytes claim; -1 if there are too few bytes."""
        head = self._array[:_COUNT]
        return int(head.view("<i8")[0]) if len(head) == _COUNT else -1

    def complete(self, size: int) -> bool:
        """Whether these are the bytes of a sum of so many elements, no more and no fewer."""
        if self.size != size or len(self.data) < _start(size):
            return False
        widths = self._forms[:, 1].astype(np.int64)
        last = size - BLOCK * (len(widths) - 1)
        numbers = int(widths[:-1].sum()) * BLOCK + int(widths[-1]) * last if size else 0
        return len(self.data) == _start(size) + numbers

    def sound(self, most: float) -> bool:
        """Whether this is the form of a sum that additions of finite numbers, `most` in all, can give."""
        shift, width = self._forms.T.astype(np.int64)
        if bool((shift > _LOW).any() or (shift + 8 * width > 8 * WIDEST + 7).any()):
            return False
        forms = self._forms.tolist()
        largest = most * 2.0**10
        return all(
            -largest - 1 <= int(high.min()) and int(high.max()) <= largest and _form(high, low) == tuple(form)
            for form, (high, low) in zip(forms, self._numbers(), strict=True)
        )

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The coarse and the fine part of each block."""
        return map(_to_floats, self._numbers())

    def value(self, dtype: torch.dtype = torch.float64, divisor: float = 1.0) -> Tensor:
        """The sum over a divisor: see `add_parts`."""
        return add_parts(self.parts(), self.size, dtype, divisor)

    @property
    def _array(self) -> Array:
        """The bytes as an array."""
        return self.data.numpy()

    @property
    def _forms(self) -> Array:
        """The shift and the width of every block."""
        return self._array[_COUNT : _start(self.size)].reshape(-1, 2)

    def _numbers(self) -> Iterator[tuple[Array, Array]]:
        """The upper and the lower parts of the numbers of each block."""
        return _unpack((self._forms, self._array[_start(self.size) :]), self.size)


def pack_blocks(coarse: Tensor, fine: Tensor) -> Blocks:
    """The blocks of a sum, or of a part of it that begins with a block: see `PackedSum.of`."""
    size, place = len(coarse), 0
    forms, data = np.empty((-(-size // BLOCK), 2), np.uint8), np.empty(WIDEST * size, np.uint8)
    for i, (c, f) in enumerate(zip(torch.split(coarse, BLOCK), torch.split(fine, BLOCK), strict=True) if size else ()):
        high, low = _whole(c.cpu().numpy(), f.cpu().numpy())
        shift, width = forms[i] = _form(high, low)
        place = _write(data, place, int(width), high, low, int(shift))
    data.resize(place, refcheck=False)  # memory that was not written to was not taken
    return forms, data


def unpack_blocks(blocks: Blocks, size: int, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The coarse and the fine part of so many elements, some at a time: a multiple of `BLOCK`."""
    numbers = _unpack(blocks, size)
    while some := list(islice(numbers, length // BLOCK)):
        high, low = (np.concatenate(each) if len(some) > 1 else each[0] for each in zip(*some, strict=True))
        yield _to_floats((high, low))


def add_parts(
    parts: Iterator[tuple[Tensor, Tensor]],
    size: int,
    dtype: torch.dtype = torch.float64,
    divisor: float = 1.0,
    device: torch.device | None = None,
) -> Tensor:
    """A sum over a divisor, rounded to double precision, divided, and rounded to a dtype, a piece at a time.

    Args:
        parts: of the sum.
        size: the number of its elements.
        dtype: of the result.
        divisor: what every element is divided by.
        device: where the parts are; None is the host.
    """
    out, place = torch.empty(size, dtype=dtype, device=device), 0
    for coarse, fine in parts:
        piece, place = out[place : place + len(fine)], place + len(fine)
        if dtype == torch.float64:
            torch.add(coarse, fine, out=piece)
            if divisor != 1:
                piece.div_(divisor)
        else:
            whole = torch.add(coarse, fine)
            piece.copy_(whole if divisor == 1 else whole.div_(divisor))
    return out


def most_packed(size: int) -> int:
    """The most bytes that a sum of so many elements takes."""
    return _start(size) + WIDEST * size


def to_words(coarse: Tensor, fine: Tensor) -> tuple[Array, Array]:
    """Numbers of a sum as whole numbers of units of 2^-60: the lowest 64 bits, and the bits above with the sign.

    Args:
        coarse: multiples of 2^-10, below 2^43.
        fine: multiples of 2^-60, below 2^-7.
    """
    if not len(coarse):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    high, low = _whole(coarse.cpu().numpy(), fine.cpu().numpy())
    return (high << _LOW) | low, high >> (64 - _LOW)


def from_words(low: Array, high: Array) -> tuple[Tensor, Tensor]:
    """The coarse and the fine part of the numbers that `to_words` returned."""
    above = (high << (64 - _LOW)) | (low.view(np.uint64) >> np.uint64(_LOW)).view(np.int64)
    return _to_floats((above, low & _MASK))


def _start(size: int) -> int:
    """Where the numbers begin."""
    return _COUNT + 2 * -(-size // BLOCK)


def _whole(coarse: Array, fine: Array) -> tuple[Array, Array]:
    """A block as whole numbers: upper parts of any sign, and lower parts of 0 or more, below 2^50."""
    fits = coarse.max() < 2.0**43 and coarse.min() > -(2.0**43) and fine.max() < 2.0**-7 and fine.min() > -(2.0**-7)
    if not fits:  # nor if one is NaN
        raise ValueError("PackedSum: not the parts of an exact sum; let every upload pass the gate before it is added")
    low = (fine * 2.0**60).astype(np.int64)
    high = (coarse * 2.0**10).astype(np.int64)
    high += low >> _LOW
    low &= _MASK
    return high, low


def _form(high: Array, low: Array) -> tuple[int, int]:
    """The shift of a block, at most 50 bits, and the width of its numbers in bytes."""
    ends = int(np.bitwise_or.reduce(low))
    shift = (ends & -ends).bit_length() - 1 if ends else _LOW
    above = max(int(high.max()), ~int(high.min()))
    bits = _LOW + above.bit_length()
    if not above:  # the upper parts, 0 or -1, are nothing but signs
        bits = int(np.bitwise_or.reduce(low ^ (high & _MASK))).bit_length()
    return shift, max(0, -(-(bits + 1 - shift) // 8))


def _unpack(blocks: Blocks, size: int) -> Iterator[tuple[Array, Array]]:
    """The upper and the lower parts of the numbers of each block, of so many elements in all."""
    (forms, data), place = blocks, 0
    for block, (shift, width) in enumerate(forms.tolist()):
        count = min(BLOCK, size - BLOCK * block)
        yield _read(data[place : place + width * count], count, width, shift)
        place += width * count


def _planes(width: int) -> Iterator[tuple[int, int]]:
    """The planes of numbers of a width: the first byte and the number of bytes of each."""
    at = 0
    for size in (8, 4, 2, 1):
        while width - at >= size:
            yield at, size
            at += size


def _write(out: Array, place: int, width: int, high: Array, low: Array, shift: int) -> int:
    """Write the numbers of a block, and return the place behind them."""
    words = [(high << (_LOW - shift)) | (low >> shift)]
    if width > 8:
        words.append(high >> (64 - _LOW + shift))
    for at, size in _planes(width):
        plane = words[at // 8].astype("<i8", copy=False).view(f"<i{size}")[at % 8 // size :: 8 // size]
        end = place + size * len(plane)
        out[place:end].view(f"<i{size}")[:] = plane
        place = end
    return place


def _read(data: Array, count: int, width: int, shift: int) -> tuple[Array, Array]:
    """The numbers of a block."""
    words = [np.zeros(count, "<i8") for _ in range(2 if width > 8 else 1)]
    for at, size in _planes(width):
        plane = data[at * count : (at + size) * count].view(f"<i{size}")
        words[at // 8].view(f"<i{size}")[at % 8 // size :: 8 // size] = plane
    unused = 64 * len(words) - 8 * width
    if 0 < unused < 64:  # the sign goes into all bits above
        words[-1] <<= unused
        words[-1] >>= unused
    word = words[0].astype(np.int64, copy=False)
    low = (word << shift) & _MASK
    if width <= 8:
        return word >> (_LOW - shift), low
    below = (word.view(np.uint64) >> np.uint64(_LOW - shift)).view(np.int64)
    return (words[1].astype(np.int64, copy=False) << (64 - _LOW + shift)) | below, low


def _to_floats(numbers: tuple[Array, Array]) -> tuple[Tensor, Tensor]:
    """The coarse and the fine part of numbers in their upper and lower parts."""
    return _floats(numbers[0], 2.0**-10), _floats(numbers[1], 2.0**-60)


def _floats(x: Array, unit: float) -> Tensor:
    """Whole numbers of a unit as a tensor."""
    out = x.astype(np.float64)
    out *= unit
    return torch.from_numpy(out)
