"""Vectors of whole numbers modulo 2^104: the form in which exact sums are masked.

A number of an exact sum is a whole number of units of 2^-60, and the gate keeps the magnitudes of a round's uploads
below 2^100 in all. So a sum modulo 2^104 never wraps, and the sum that is read from it is the plain one, bit for bit.
A number is held in two halves of 52 bits, with space above them: additions carry only now and then.
"""

from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np

from undrift.core.records.exact_sum import AnySum, ExactSum
from undrift.core.records.packed_sum import Array, from_words, to_words
from undrift.secure.keys import open_stream
from undrift.secure.settings import SecureError

WIDTH = 13
"""Bytes of a number on the wire."""

_HALF = 52
_MASK = np.int64((1 << _HALF) - 1)
_CARRY = 1 << 10  # additions of lower halves between two carries; 2^11 would fit
_CHUNK = 1 << 14  # numbers that are masked at a time, so that their mask stays in the processor's cache


class Residues:
    """A vector modulo 2^104.

    Args:
        low: the lower halves of the numbers.
        high: the upper halves; bits above these 52 do not count.
    """

    def __init__(self, low: Array, high: Array) -> None:
        self.low, self.high = low, high
        self._pending = 0

    @classmethod
    def zeros(cls, size: int) -> Self:
        """A vector of zeros."""
        return cls(np.zeros(size, np.int64), np.zeros(size, np.int64))

    @classmethod
    def of(cls, sums: Iterable[AnySum]) -> Self:
        """Exact sums, one behind the other."""
        words = [to_words(coarse, fine) for total in sums for coarse, fine in total.parts()]
        if not words:
            return cls.zeros(0)
        low, high = (np.concatenate(each) for each in zip(*words, strict=True))
        return cls(*_halves(low, high))

    @classmethod
    def from_bytes(cls, data: bytes, size: int) -> Self:
        """The vector of which `to_bytes` made the bytes."""
        if len(data) != WIDTH * size:
            raise SecureError(f"masked sum: {len(data)} bytes, expected {WIDTH * size} for {size} numbers")
        low, middle = np.frombuffer(data, "<i8", size), np.frombuffer(data, "<u4", size, 8 * size)
        top = np.frombuffer(data, "u1", size, 12 * size)
        return cls(*_halves(low.astype(np.int64), middle.astype(np.int64) | top.astype(np.int64) << 32))

    def to_bytes(self) -> bytes:
        """The vector in 13 bytes a number: the lowest 8 bytes of all numbers, the next 4, the last, little-endian."""
        low, high = self._words()
        planes = low.astype("<i8", copy=False), high.astype("<u4"), (high >> 32).astype("u1")
        return b"".join(plane.tobytes() for plane in planes)

    def __len__(self) -> int:
        return len(self.low)

    def add(self, other: "Residues") -> None:
        """Add another vector."""
        other._carry()
        self._count()
        self.low += other.low
        self.high += other.high

    def add_mask(self, seed: bytes, sign: int) -> None:
        """Add or subtract the mask that follows from a seed of 32 bytes: uniform over all numbers.

        Args:
            seed: the seed.
            sign: 1 adds, -1 subtracts.
        """
        self._count()
        change, stream = np.add if sign > 0 else np.subtract, open_stream(seed)
        for start in range(0, len(self), _CHUNK):
            low, high = self.low[start : start + _CHUNK], self.high[start : start + _CHUNK]
            words = stream(16 * len(low)).view("<i8")
            np.bitwise_and(words[: len(low)], _MASK, out=words[: len(low)])
            change(low, words[: len(low)], out=low)
            change(high, words[len(low) :], out=high)

    def sums(self, sizes: Iterable[int]) -> Iterator[ExactSum]:
        """The numbers, with their signs, as exact sums of these lengths, one behind the other."""
        (low, high), start = self._words(), 0
        for size in sizes:
            yield ExactSum.of(*from_words(low[start : start + size], high[start : start + size]))
            start += size

    def _words(self) -> tuple[Array, Array]:
        """The lowest 64 bits of each number, and the 40 above with the sign."""
        self._carry()
        signed = self.high << (64 - _HALF) >> (64 - _HALF)
        return self.low | self.high << _HALF, signed >> (64 - _HALF)

    def _count(self) -> None:
        """Count an addition, and carry where it is time."""
        self._pending += 1
        if self._pending >= _CARRY:
            self._carry()

    def _carry(self) -> None:
        """Move what is above the lower halves to the upper ones."""
        if self._pending:
            self.high += self.low >> _HALF
            self.low &= _MASK
            self._pending = 0


def _halves(low: Array, high: Array) -> tuple[Array, Array]:
    """The halves of numbers from their lowest 64 bits and those above."""
    return low & _MASK, (low.view(np.uint64) >> np.uint64(_HALF)).view(np.int64) | high << (64 - _HALF)
