"""Compressed displacements, one entry at a time, in double precision."""

from math import ceil, floor

from .methods import Params


def top_k(moved: Params, rest: Params, k: float) -> tuple[Params, Params]:
    """What is sent of a displacement and the rest before it, and what is left: the k d largest entries by magnitude."""
    sent = {name: (moved[name] + rest[name]).double() for name in moved}
    left = {name: x.clone() for name, x in sent.items()}
    order = sorted((-abs(float(v)), name, i) for name, x in sent.items() for i, v in enumerate(x.reshape(-1)))
    count = ceil(k * len(order))
    for _, name, i in order[:count]:
        left[name].view(-1)[i] = 0
    for _, name, i in order[count:]:
        sent[name].view(-1)[i] = 0
    return sent, left


def quantized(values: list[float], bits: int, draws: list[float]) -> list[float]:
    """Values of one block rounded to s floor(v / s + z), with the smallest power of two that reaches all."""
    most, e = 2 ** (bits - 1) - 1, -60
    while max(map(abs, values)) > most * 2.0**e:
        e += 1
    return [2.0**e * min(max(floor(v / 2.0**e + z), -most), most) for v, z in zip(values, draws, strict=True)]
