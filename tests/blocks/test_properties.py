"""Properties that hold for every input: filters are the operators they say, sums are exact in any order."""

from fractions import Fraction
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.registry import FILTERS
from undrift.blocks import (
    Filter,
    block_means,
    cap_norm,
    center,
    clip_coordinates,
    high_pass,
    high_pass_2d,
    low_pass,
    random_stop,
    rescale,
)
from undrift.blocks.spectral.center import OVER
from undrift.core.model.flat_model import Layout
from undrift.core.records.exact_sum import LIMIT, ExactSum

LAYOUT = Layout(("a.weight", "b.weight", "c.weight", "d.bias"), ((3, 4, 3, 3), (3, 4, 3, 3), (7, 9), (41,)))
LINEAR = [f for f in FILTERS if not isinstance(f, (cap_norm, clip_coordinates, rescale))]
PROJECTIONS = [f for f in LINEAR if isinstance(f, (high_pass, low_pass, random_stop))]
seeds = st.integers(0, 2**32 - 1)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def apply(f: Filter, v: torch.Tensor) -> torch.Tensor:
    return f(v, LAYOUT, torch.Generator().manual_seed(1))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("f", LINEAR, ids=str)
@given(seed=seeds, a=st.floats(-3, 3), b=st.floats(-3, 3))
@settings(max_examples=15, deadline=None)
def test_filters_are_linear_and_symmetric(f: Filter, seed: int, a: float, b: float) -> None:
    v, u = draw(seed, LAYOUT.size), draw(seed + 1, LAYOUT.size)
    torch.testing.assert_close(apply(f, a * v + b * u), a * apply(f, v) + b * apply(f, u), rtol=0, atol=1e-10)
    assert abs(float(apply(f, v) @ u - v @ apply(f, u))) < 1e-9


MEANS = [center(over) for over in OVER] + [block_means(7)]


@pytest.mark.parametrize("f", [*PROJECTIONS, *MEANS, high_pass_2d(0.1)], ids=str)
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_projections_are_idempotent_and_orthogonal(f: Filter, seed: int) -> None:
    v = draw(seed, LAYOUT.size)
    once = apply(f, v)
    torch.testing.assert_close(apply(f, once), once, rtol=0, atol=1e-11)
    assert float(v @ v) == pytest.approx(float(once @ once + (v - once) @ (v - once)), abs=1e-9)
    assert float(once @ v) >= -1e-12  # an ascent direction stays one


@pytest.mark.parametrize("f", FILTERS, ids=str)
@given(seed=seeds)
@settings(max_examples=5, deadline=None)
def test_filters_leave_their_input_and_what_is_out_of_scope_alone(f: Filter, seed: int) -> None:
    v = draw(seed, LAYOUT.size)
    before = v.clone()
    filtered = apply(f, v)
    assert torch.equal(v, before)
    for name, tensor in LAYOUT.named(filtered).items():
        if not f.covers(name, tuple(tensor.shape)):
            assert torch.equal(tensor, LAYOUT.named(v)[name])


@pytest.mark.sweep(every=4)
@given(size=st.integers(1, 300), r=st.floats(0, 0.9))
@settings(max_examples=60, deadline=None)
def test_high_pass_removes_the_dimension_it_says(size: int, r: float) -> None:
    layout = Layout(("w",), ((size,),))
    matrix = torch.stack([high_pass(r)(row, layout) for row in torch.eye(size, dtype=torch.float64)])
    bins, count = size // 2 + 1, int(r * (size // 2 + 1) + 1e-9)
    lost = 0 if count == 0 else 2 * count - 1 - (size % 2 == 0 and count == bins)
    assert round(float(matrix.trace()), 6) == size - lost
    constant = torch.ones(size, dtype=torch.float64)
    assert bool((high_pass(r)(constant, layout).abs() < 1e-12).all()) == (count >= 1)


@given(seed=seeds, magnitude=st.floats(-12, 9), count=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_exact_sum_rounds_once(seed: int, magnitude: float, count: int) -> None:
    values = draw(seed, count, 7) * 10.0**magnitude
    total = ExactSum(7)
    for row in values:
        total.add(row)
    for j, got in enumerate(total.value().tolist()):
        exact = sum(Fraction(x) for x in values[:, j].tolist())
        assert abs(Fraction(got) - exact) <= count * Fraction(1, 2**61) + abs(exact) * Fraction(1, 2**52)  # type: ignore[operator]


@pytest.mark.sweep(every=4)
def test_merge_is_associative_and_commutative_to_the_bit() -> None:
    values = draw(0, 60, 70_000) * torch.logspace(-9, 6, 70_000, dtype=torch.float64)
    weights = draw(1, 60).abs().tolist()
    chance = Random(0)
    results = set()
    for _ in range(100):
        order = chance.sample(range(60), 60)
        sums = [ExactSum(70_000) for _ in range(chance.randint(1, 9))]
        for i in order:
            chance.choice(sums).add(values[i], weights[i])
        while len(sums) > 1:  # merge in a random tree
            one = sums.pop(chance.randrange(len(sums)))
            chance.choice(sums).merge(one)
        results.add(sums[0].value().numpy().tobytes())
    assert len(results) == 1


def test_float_sums_would_not_do() -> None:
    values = draw(0, 60, 1000).float()
    orders = [np.random.default_rng(i).permutation(60) for i in range(20)]
    assert len({sum(values[i] for i in order).numpy().tobytes() for order in orders}) > 1  # type: ignore[union-attr]


def test_exact_up_to_the_limit() -> None:
    total = ExactSum(2)
    for _ in range(4):
        total.add(torch.tensor([LIMIT / 4, -LIMIT / 4], dtype=torch.float64))
        total.add(torch.tensor([2.0**-60, 2.0**-60], dtype=torch.float64))
    assert total.coarse.tolist() == [LIMIT, -LIMIT] and total.fine.tolist() == [2.0**-58, 2.0**-58]
