"""Sums of long vectors, which are kept packed: the same bits as those that are not."""

import pytest
import torch
from torch import Tensor

from undrift import Local, Simulation
from undrift.algorithms import make
from undrift.core.records import exact_sum
from undrift.core.records.exact_sum import LIMIT, ExactSum, LongSum, NamedSums
from undrift.core.records.packed_sum import BLOCK, PackedSum
from undrift.testing import Clinic, fingerprint

SIZES = (1, BLOCK - 1, BLOCK, 3 * BLOCK, 5 * BLOCK + 17)
METHODS = ("fedavg", "scaffold", "feddyn", "fedper", "fednova", "q-fedavg", "median")


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sum, "_PIECE", 2 * BLOCK)


def draw(size: int, count: int = 6) -> list[tuple[Tensor, float]]:
    """Vectors of many magnitudes, with weights."""
    source = torch.Generator().manual_seed(size)
    weights = (1.0, 600.0, 0.1, 3.0, 1e-3, 7.5)
    return [(torch.randn(size, generator=source) * 2.0 ** (9 - 8 * i), weights[i]) for i in range(count)]


@pytest.mark.parametrize("size", SIZES)
def test_the_bits_are_those_of_a_plain_sum(size: int) -> None:
    long, plain = LongSum(size), ExactSum(size)
    for x, weight in draw(size):
        long.add(x, weight)
        plain.add(x, weight)
    assert torch.equal(long.pack().data, plain.pack().data)
    assert torch.equal(long.value(), plain.value()) and torch.equal(long.pack().value(), plain.value())
    for dtype in (torch.float32, torch.float64):
        expected = (plain.coarse + plain.fine).div(3.7).to(dtype)
        for total in (plain, long, long.pack()):
            assert torch.equal(total.value(dtype, 3.7), expected)
    assert long.sound(LIMIT) and not long.sound(float(plain.value().abs().max()) / 2)
    for length in (BLOCK, 2 * BLOCK):
        coarse, fine = (torch.cat(each) for each in zip(*long.parts(length), strict=True))
        assert torch.equal(coarse + fine, plain.value())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", [LongSum, ExactSum, PackedSum])
def test_each_form_is_merged_and_shares_nothing_that_changes(size: int, form: type) -> None:
    given = draw(size)
    whole, other, total = ExactSum(size), ExactSum(size) if form is not LongSum else LongSum(size), LongSum(size)
    for x, weight in given:
        whole.add(x, weight)
    for x, weight in given[:2]:
        other.add(x, weight)
    theirs = other.pack() if form is PackedSum else other
    before = theirs.value()
    total.merge(theirs)
    for x, weight in given[2:]:
        total.add(x, weight)
    assert torch.equal(total.pack().data, whole.pack().data) and torch.equal(theirs.value(), before)
    total.merge(theirs)
    whole.merge(theirs)
    assert torch.equal(total.pack().data, whole.pack().data) and torch.equal(theirs.value(), before)
    plain = ExactSum(size)
    plain.merge(total)
    assert torch.equal(plain.pack().data, whole.pack().data)
    with pytest.raises(ValueError, match=f"sums of {size} and {size + 1} elements"):
        total.merge(LongSum(size + 1))


def test_an_untouched_sum_is_zero() -> None:
    total = LongSum(5 * BLOCK)
    assert total.pack().complete(5 * BLOCK) and not total.value().any()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_sums_travel_with_and_without_a_mask(packed: bool, inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 5 * BLOCK + 17
    mask = torch.rand(size, generator=torch.Generator().manual_seed(1)) < 0.2
    forms = []
    for least in (1, size + 1):
        monkeypatch.setattr(exact_sum, "LONG", least)
        here, there = NamedSums(), NamedSums()
        for x, weight in draw(size):
            here.add("delta", x * mask if inside else x, weight)
        tensors = here.flatten(packed, mask)
        assert set(tensors) == ({"delta/sum"} if packed or least == 1 else {"delta/coarse", "delta/fine"})
        there.restore(tensors, {"delta": size}, packed, mask)
        assert there.norm("delta") == here.norm("delta")
        there.add("delta", torch.ones(size))
        assert isinstance(there.sums["delta"], LongSum if least == 1 else ExactSum)
        forms.append(there.flatten()["delta/sum"])
    assert torch.equal(*forms)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_with_long_sums_has_the_same_bits(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = set()
    for least in (1, 1 << 25):
        monkeypatch.setattr(exact_sum, "LONG", least)
        run = Simulation(make(method), Clinic(), Local(batch_size=4, weight_decay=0.01), cohort=4, bound=50.0)
        hashes.add(fingerprint(run.run(2)))
    assert len(hashes) == 1
