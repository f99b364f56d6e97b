"""Exact sums as whole numbers modulo 2^104, and shares of secrets."""

import secrets
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from undrift.core.records.exact_sum import LIMIT, ExactSum
from undrift.secure.residues import Residues
from undrift.secure.settings import SecureError
from undrift.secure.shamir import join, split

NUMBERS = st.floats(-LIMIT / 8, LIMIT / 8, allow_nan=False)


def exact(values: list[float], weight: float = 1.0) -> ExactSum:
    total = ExactSum(len(values))
    total.add(torch.tensor(values, dtype=torch.float64), weight)
    return total


def whole(x: Residues) -> list[int]:
    """The numbers as Python's, computed another way: from the bytes."""
    data, size = x.to_bytes(), len(x)
    planes = [data[8 * i : 8 * i + 8] + data[8 * size + 4 * i :][:4] + data[12 * size + i :][:1] for i in range(size)]
    return [int.from_bytes(plane, "little") for plane in planes]


@pytest.mark.quick
@given(st.lists(NUMBERS, min_size=1, max_size=8), st.lists(NUMBERS, min_size=8, max_size=8))
def test_sums_of_residues_are_exact_sums(first: list[float], second: list[float]) -> None:
    second = second[: len(first)]
    one, two, both = exact(first), exact(second), exact(first)
    both.add(torch.tensor(second, dtype=torch.float64))
    left, right = Residues.of([one]), Residues.of([two])
    units = [int(Fraction(x) * 2**60) % 2**104 for x in one.value().tolist()] if max(map(abs, first)) < 2**-8 else None
    assert units is None or whole(left) == units
    left.add(right)
    (found,) = left.sums([len(first)])
    assert torch.equal(found.value(), both.value()) and torch.equal(found.pack().data, both.pack().data)
    again = Residues.from_bytes(left.to_bytes(), len(left))
    assert whole(again) == whole(left) and again.to_bytes() == left.to_bytes()


def test_sums_lie_one_behind_the_other() -> None:
    sums = [exact([1.5, -2.0]), ExactSum(0), exact([-(2.0**-60)])]
    found = list(Residues.of(sums).sums([2, 0, 1]))
    assert [x.value().tolist() for x in found] == [[1.5, -2.0], [], [-(2.0**-60)]]
    assert len(Residues.of([])) == 0


@pytest.mark.parametrize("seeds", [1, 3, 2500])
def test_masks_cancel_also_after_many_carries(seeds: int) -> None:
    x = Residues.of([exact([3.25, -1e6, 0.0])])
    before, masks = x.to_bytes(), [secrets.token_bytes(32) for _ in range(seeds)]
    for seed in masks:
        x.add_mask(seed, 1)
    assert x.to_bytes() != before
    for seed in masks:
        x.add_mask(seed, -1)
    assert x.to_bytes() == before


def test_masks_are_uniform_over_all_bits() -> None:
    """Every one of the 104 bits of 40,000 masked zeros is set in half of them, within 5 standard errors."""
    x = Residues.zeros(40_000)
    x.add_mask(secrets.token_bytes(32), -1)
    data = np.frombuffer(x.to_bytes(), np.uint8)
    planes = data[:320_000].reshape(-1, 8), data[320_000:480_000].reshape(-1, 4), data[480_000:].reshape(-1, 1)
    for plane in planes:
        ones = np.unpackbits(plane, axis=1).mean(0)
        assert np.abs(ones - 0.5).max() < 5 * 0.5 / 200


def test_bytes_of_another_length_are_refused() -> None:
    with pytest.raises(SecureError, match=r"12 bytes, expected 13 for 1 numbers"):
        Residues.from_bytes(bytes(12), 1)


def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not() -> None:
    secret = secrets.token_bytes(32)
    shares = split(secret, 3, [1, 2, 5, 9])
    assert {len(share) for share in shares.values()} == {66}
    for points in combinations(shares, 3):
        assert join({point: shares[point] for point in points}, 32) == secret
    assert join(shares, 32) == secret
    for points in combinations(shares, 2):  # type: ignore[assignment]
        with pytest.raises(SecureError, match="do not belong together, or are too few"):
            join({point: shares[point] for point in points}, 32)


def test_fewer_shares_fit_every_secret() -> None:
    """Two of three shares are those of any other secret, too: a third point can be chosen so that it comes out."""
    shares = split(bytes(32), 3, [1, 2, 3])
    wanted, prime = int.from_bytes(secrets.token_bytes(32), "big"), 2**521 - 1
    one, two = (int.from_bytes(shares[point], "big") for point in (1, 2))
    third = (wanted - 3 * one + 3 * two) % prime  # f(0) = 3 f(1) - 3 f(2) + f(3)
    assert join({1: shares[1], 2: shares[2], 3: third.to_bytes(66, "big")}, 32) == wanted.to_bytes(32, "big")
