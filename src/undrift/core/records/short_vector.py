"""A short form of a vector on the wire, for displacements that a release has compressed: every bit is restored.

Each block of `BLOCK` entries has the shortest of three forms: multiples of a power of two in 0 to 8 bits each; the
positions (2 bytes) and the values of the entries that are not zero; or the values as they are. The bytes,
little-endian: the number of entries and the bytes of a value (8 bytes each); for every block its form, its exponent and
the number of its positions (1, 1 and 2 bytes); then the blocks.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.records.packed_sum import BLOCK

_SPARSE, _WHOLE = 254, 255  # forms; one of 0 to 8 is the number of bits
_BITS = 8
_HEAD = np.dtype([("form", "u1"), ("exponent", "i1"), ("count", "<u2")])

Array = np.ndarray[Any, Any]


def shorten(x: Tensor) -> Tensor:
    """A vector of floats of 4 or 8 bytes as the bytes of its short form."""
    values = x.detach().cpu().numpy()
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    heads, bodies = np.zeros(_blocks(len(values)), _HEAD), []
    for number, start in enumerate(range(0, len(values), BLOCK)):
        heads[number], body = _shortest(values[start : start + BLOCK])
        bodies.append(body)
    first = np.array([len(values), values.dtype.itemsize], "<i8")
    return torch.from_numpy(np.concatenate([first.view(np.uint8), heads.view(np.uint8), *bodies]))


def lengthen(data: Tensor, size: int) -> Tensor:
    """The vector of which `shorten` made these bytes.

    Args:
        data: the bytes.
        size: how many entries are expected.

    Raises:
        ValueError: they are not a short form of so many entries.
    """
    if data.dtype != torch.uint8 or data.dim() != 1 or len(data) < 16:
        raise ValueError(f"not the bytes of a short vector: {tuple(data.shape)} of {data.dtype}")
    raw = data.numpy()
    found, width = raw[:16].view("<i8").tolist()
    place = 16 + _HEAD.itemsize * _blocks(size)
    if found != size or width not in (4, 8) or len(raw) < place:
        raise ValueError(f"not a short vector of {size} entries")
    out = np.zeros(size, f"<f{width}")
    for number, (form, exponent, count) in enumerate(raw[16:place].view(_HEAD).tolist()):
        block = out[BLOCK * number : BLOCK * (number + 1)]
        end = place + _length(form, len(block), count, width)
        if end > len(raw):
            raise ValueError("a short vector that was cut")
        _fill(block, raw[place:end], form, exponent, count)
        place = end
    if place != len(raw):
        raise ValueError(f"{len(raw) - place} bytes behind a short vector")
    return torch.from_numpy(out.astype(out.dtype.newbyteorder("="), copy=False))


def _blocks(size: int) -> int:
    """How many blocks so many entries have."""
    return -(-size // BLOCK)


def _length(form: int, size: int, count: int, width: int) -> int:
    """The bytes of a block."""
    if form == _SPARSE:
        return (2 + width) * count
    if form == _WHOLE:
        return width * size
    if form > _BITS:
        raise ValueError(f"no form of a short vector: {form}")
    return -(-size * form // 8)


def _shortest(x: Array) -> tuple[tuple[int, int, int], Array]:
    """The head and the bytes of a block in its shortest form."""
    places = np.flatnonzero(x.view(f"<u{x.dtype.itemsize}"))  # a negative zero is none
    sizes = {_WHOLE: x.nbytes, _SPARSE: (2 + x.dtype.itemsize) * len(places)}
    grid = _multiples(x, places)
    if grid is not None:
        bits, exponent, multiples = grid
        sizes[bits] = _length(bits, len(x), 0, 0)
    form = min(sizes, key=lambda form: (sizes[form], form))
    if form == _WHOLE:
        return (form, 0, 0), x.view(np.uint8)
    if form == _SPARSE:
        parts = places.astype("<u2").view(np.uint8), x[places].view(np.uint8)
        return (form, 0, len(places)), np.concatenate(parts)
    each = np.unpackbits(multiples.view(np.uint8)[:, None], axis=1, count=form, bitorder="little") if form else places
    return (form, exponent, 0), np.packbits(each.reshape(-1).astype(np.uint8), bitorder="little")


def _multiples(x: Array, places: Array) -> tuple[int, int, Array] | None:
    """Bits, exponent and numbers of a block of multiples of a power of two; None if it takes more than 8 bits."""
    if not len(places):
        return 0, 0, np.zeros(len(x), np.int8)
    values = x[places].astype(np.float64)
    if not np.isfinite(values).all() or not values.all():
        return None
    fractions, exponents = np.frexp(values)
    whole = (fractions * 2.0**53).astype(np.int64)
    ends = exponents - 53 + np.frexp((whole & -whole).astype(np.float64))[1] - 1  # of the lowest bit that is set
    exponent = int(ends.min())
    if int(exponents.max()) - exponent > _BITS or not -128 <= exponent <= 127:
        return None
    numbers = np.ldexp(x.astype(np.float64), -exponent).astype(np.int64)
    bits = int(max(numbers.max(), ~numbers.min(), 0)).bit_length() + 1
    return None if bits > _BITS else (bits, exponent, numbers.astype(np.int8))


def _fill(block: Array, data: Array, form: int, exponent: int, count: int) -> None:
    """Write the values of a block, which is zero."""
    if form == _WHOLE:
        block[:] = data.view(block.dtype)
    elif form == _SPARSE:
        places = data[: 2 * count].view("<u2").astype(np.int64)
        if count and (places[-1] >= len(block) or (np.diff(places) <= 0).any()):
            raise ValueError("positions of a short vector that do not ascend, or lie behind its end")
        block[places] = np.frombuffer(data[2 * count :].tobytes(), block.dtype)
    elif form:
        bits = np.unpackbits(data, count=form * len(block), bitorder="little").reshape(-1, form)
        numbers = np.packbits(bits, axis=1, bitorder="little").reshape(-1)
        signed = (numbers << (_BITS - form)).astype(np.uint8).view(np.int8) >> (_BITS - form)
        block[:] = np.ldexp(signed.astype(np.float64), exponent)
