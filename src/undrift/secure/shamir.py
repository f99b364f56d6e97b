"""Shamir's shares of a secret: any `threshold` of them give it, fewer tell nothing.

The secret is the value at 0 of a random polynomial over the whole numbers modulo the prime 2^521 - 1, and a share is
its value at a party's point. Source: A. Shamir, "How to share a secret", 1979.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

from undrift.secure.settings import SecureError

PRIME = 2**521 - 1
"""Larger than any secret of 64 bytes."""

LENGTH = 66
"""Bytes of a share."""


def split(secret: bytes, threshold: int, points: Sequence[int]) -> dict[int, bytes]:
    """The share of a secret at every point.

    Args:
        secret: at most 64 bytes.
        threshold: how many shares give the secret.
        points: different numbers from 1.
    """
    terms = [secrets.randbelow(PRIME) for _ in range(threshold - 1)] + [int.from_bytes(secret, "big")]
    shares = {}
    for point in points:
        value = 0
        for term in terms:
            value = (value * point + term) % PRIME
        shares[point] = value.to_bytes(LENGTH, "big")
    return shares


def join(shares: Mapping[int, bytes], length: int) -> bytes:
    """The secret of so many bytes that shares, by their points, give; all of them are used."""
    factors = _factors(tuple(sorted(shares)))
    secret = sum(int.from_bytes(shares[point], "big") * factor for point, factor in factors.items()) % PRIME
    try:
        return secret.to_bytes(length, "big")
    except OverflowError:
        raise SecureError("shares: they do not belong together, or are too few") from None


@lru_cache(maxsize=4096)
def _factors(points: tuple[int, ...]) -> dict[int, int]:
    """With what the share at each point counts, for the polynomial's value at 0."""
    factors = {}
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        factors[point] = above * pow(below, -1, PRIME) % PRIME
    return factors
