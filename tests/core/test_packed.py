"""The form of an exact sum on the wire."""

from fractions import Fraction
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.records.exact_sum import LIMIT, ExactSum, NamedSums
from undrift.core.records.packed_sum import BLOCK, WIDEST, PackedSum, most_packed

UNIT = 2**60
MOST = 2**103 - 2**53  # the largest whole number of units below 2^43


def summed(numbers: list[int]) -> ExactSum:
    """The sum of whole numbers of units, each in its two parts."""
    out = ExactSum(len(numbers))
    for i, number in enumerate(numbers):
        high = (number + 2**49) >> 50
        out.coarse[i], out.fine[i] = high * 2.0**-10, (number - high * 2**50) * 2.0**-60
    return out


def exact(total: ExactSum | PackedSum) -> list[int]:
    """A sum as whole numbers of units, from its parts."""
    pairs = [(c, f) for coarse, fine in total.parts() for c, f in zip(coarse.tolist(), fine.tolist(), strict=True)]
    found = [(Fraction(c) + Fraction(f)) * UNIT for c, f in pairs]
    assert all(x.denominator == 1 for x in found)
    return [int(x) for x in found]


def width(numbers: list[int]) -> int:
    """How many bytes a number of a block takes."""
    ends = [(x & -x).bit_length() - 1 for x in numbers if x]
    shift = min([*ends, 50])
    return -(-max(((x if x >= 0 else ~x) >> shift).bit_length() + 1 for x in numbers) // 8) if ends else 0


def test_plain_sums_travel_too() -> None:
    there, here, whole = NamedSums(), NamedSums(), NamedSums()
    for weight in (3.0, 0.1, 7.5, 1.0, 2.0):
        there.add("delta", torch.tensor([0.3, -1e-9, 12.5]), weight)
    here.restore(there.flatten(packed=False), {"delta": 3}, packed=False)
    assert here.sums["delta"].sound(LIMIT) and torch.equal(here.value("delta"), there.value("delta"))
    whole.merge(here)
    packed = NamedSums()
    packed.restore(there.flatten(), {"delta": 3})
    assert torch.equal(whole.flatten()["delta/sum"], packed.flatten()["delta/sum"])
    with pytest.raises(KeyError):
        here.restore(there.flatten(), {"delta": 3}, packed=False)
    with pytest.raises(KeyError):
        here.restore(there.flatten(packed=False), {"delta": 3})


@pytest.mark.parametrize("weight", [1.0, 600.0, 0.1])
def test_host_and_device_give_the_same_parts(weight: float) -> None:
    host, device = ExactSum(40_000), ExactSum(40_000)
    draw = torch.Generator().manual_seed(0)
    for power in (0, -20, -39, 6, -45):  # five additions carry once
        x = torch.randn(40_000, generator=draw) * 2.0**power
        host.add(x, weight)
        device._pending = (device._pending + 1) % 4
        device._add_on_device(x, weight)
    assert torch.equal(host.coarse, device.coarse) and torch.equal(host.fine, device.fine)


anything = st.integers(0, 103).flatmap(lambda bits: st.integers(-min(2**bits, MOST), min(2**bits, MOST)))
"""Numbers of every magnitude."""


@pytest.mark.sweep(every=0)
@given(numbers=st.lists(anything, max_size=9), zeros=st.integers(0, 70))
@settings(max_examples=300, deadline=None)
def test_every_sum_survives_with_the_fewest_bytes(numbers: list[int], zeros: int) -> None:
    numbers = [(x >> zeros) << zeros for x in numbers]
    packed = summed(numbers).pack()
    assert exact(packed) == numbers
    assert packed.complete(len(numbers)) and packed.sound(2.0**43) and packed.size == len(numbers)
    heads = 2 if numbers else 0
    assert len(packed.data) == 8 + heads + len(numbers) * (width(numbers) if numbers else 0)
    assert len(packed.data) <= most_packed(len(numbers))
    assert torch.equal(packed.value(), summed(numbers).value())


@pytest.mark.parametrize("bits", range(0, 104, 3))
def test_the_ends_of_every_width(bits: int) -> None:
    for x in (2**bits, 2**bits - 1, -(2**bits), -(2**bits) - 1):
        if abs(x) <= MOST:
            for numbers in ([x], [x, 0], [x, -1], [x, 1], [-x, x, 2**49, -(2**49)]):
                assert exact(summed(numbers).pack()) == numbers


@pytest.mark.quick
def test_bytes_by_hand() -> None:
    """Three elements, a shift of 4, a width of 1; then two of two bytes, and two of three in two planes."""
    assert summed([16, -32, 0]).pack().data.tolist() == [3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 1, 254, 0]
    assert summed([1, 257]).pack().data.tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 1, 1]
    assert summed([1, -65536]).pack().data.tolist()[8:] == [0, 3, 1, 0, 0, 0, 0, 255]
    assert summed([0, 0]).pack().data.tolist()[8:] == [50, 0]


@pytest.mark.sweep(every=0)
def test_blocks_have_widths_of_their_own() -> None:
    size = 2 * BLOCK + 7
    total = ExactSum(size)
    total.fine[3], total.coarse[BLOCK + 1] = 2.0**-60, 2.0**40
    total.fine[BLOCK] = -(2.0**-59)
    packed = total.pack()
    assert packed.data[8:14].tolist() == [0, 1, 1, WIDEST, 50, 0]
    assert len(packed.data) == 14 + BLOCK * (1 + WIDEST) and packed.complete(size) and packed.sound(LIMIT)
    assert torch.equal(packed.value(), total.value()) and exact(packed) == exact(total)


def test_one_sum_has_one_form() -> None:
    """However it was added up, and before or after a carry."""
    chance, size = Random(1), BLOCK + 5
    values = torch.randn(12, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 40
    values[:, 0] = 2.0**-11  # half a unit of the coarse part
    forms = set()
    for _ in range(6):
        sums = [ExactSum(size) for _ in range(3)]
        for i in chance.sample(range(12), 12):
            chance.choice(sums).add(values[i])
        one, two, three = sums
        one.merge(two.pack())
        three.merge(one)
        forms.add(three.pack().data.numpy().tobytes())
    assert len(forms) == 1


def test_sums_from_the_wire_go_on() -> None:
    x, y, z = torch.randn(3, BLOCK + 9, generator=torch.Generator().manual_seed(0))
    whole, here, there = NamedSums(), NamedSums(), NamedSums()
    for part in (x, y, z):
        whole.add("a", part, 37.0)
    here.add("a", x, 37.0)
    there.restore(here.flatten(), {"a": BLOCK + 9})
    there.add("a", y, 37.0)
    last = NamedSums()
    last.add("a", z, 37.0)
    again = NamedSums()
    again.restore(there.flatten(), {"a": BLOCK + 9})
    assert torch.equal(again.flatten()["a/sum"], there.flatten()["a/sum"])  # packed sums are sent on as they are
    last.merge(again)
    assert torch.equal(last.value("a"), whole.value("a")) and last.number("b") == 0.0
    assert torch.equal(last.flatten()["a/sum"], whole.flatten()["a/sum"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**43, -(2.0**43)])
@pytest.mark.parametrize("part", ["coarse", "fine"])
def test_what_is_no_sum_is_not_packed(part: str, value: float) -> None:
    total = ExactSum(3)
    getattr(total, part)[1] = value
    with pytest.raises(ValueError, match="let every upload pass the gate"):
        total.pack()


def test_damage_is_found() -> None:
    good = summed([2**90, -5, 12, 0]).pack().data
    assert PackedSum(good).complete(4) and PackedSum(good).sound(2.0**30)
    assert not PackedSum(good).complete(5) and not PackedSum(good).sound(2.0**30 - 1)
    for data in (good[:-1], torch.cat([good, good[:1]]), good[:9], good[:8], good[:3], good[:0]):
        assert not PackedSum(data).complete(4)

    def forged(place: int, value: int) -> PackedSum:
        data = good.clone()
        data[place] = value
        return PackedSum(data)

    assert not any(forged(place, 255).complete(4) for place in (0, 5, 7, 9))  # elements; width
    assert not any(forged(8, shift).sound(2.0**43) for shift in (16, 50, 51, 255))
    longer = torch.tensor([1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0], dtype=torch.uint8)
    even = torch.tensor([1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2], dtype=torch.uint8)
    wide = torch.tensor([1, 0, 0, 0, 0, 0, 0, 0, 0, 14] + [255] * 13 + [127], dtype=torch.uint8)
    for data in (longer, even, wide):
        assert PackedSum(data).complete(1) and not PackedSum(data).sound(2.0**43)
    claimed = torch.tensor([0, 0, 0, 0, 0, 0, 0, 127, 50, 0], dtype=torch.uint8)  # very many zeros in ten bytes
    assert not PackedSum(claimed).complete(4)


def test_the_limit_may_be_reached() -> None:
    for sign in (1, -1):
        packed = summed([sign * 2**100, sign]).pack()
        assert packed.sound(LIMIT) and not packed.sound(LIMIT / 2)
    assert PackedSum(ExactSum(0).pack().data).sound(1.0)


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_the_norm_is_that_of_the_sum_and_the_same_for_both_forms(size: int) -> None:
    x = torch.randn(size, generator=torch.Generator().manual_seed(size))
    sums, packed = NamedSums(), NamedSums()
    for weight in (3.0, 0.25):
        sums.add("v", x, weight)
    packed.restore(sums.flatten(), {"v": size})
    assert isinstance(packed.sums["v"], PackedSum) and packed.norm("v") == sums.norm("v")
    assert sums.norm("v") == pytest.approx(float(torch.linalg.vector_norm(sums.value("v"))), rel=1e-14)
