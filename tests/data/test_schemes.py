"""Each scheme deals as it says: known numbers, the literal rules, and soon enough."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.data.partitions.draw import partition
from undrift.data.partitions.schemes import holders

CIFAR = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
FASHION = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 6000))


def main_classes(histogram: np.ndarray) -> float:
    """The mean number of classes that hold more than 1 % of a client."""
    return float((histogram > 0.01 * histogram.sum(axis=1, keepdims=True)).sum(axis=1).mean())


def literal_dirichlet(alpha: float, balance: bool, draw: np.random.Generator) -> np.ndarray:
    """The rule as papers state it, for 100 clients and ten classes of 5000: shares of full clients set to zero."""
    while True:
        counts = np.zeros((100, 10), int)
        for c in range(10):
            q = draw.dirichlet(np.full(100, alpha))
            q = q * (counts.sum(axis=1) < 500) if balance else q
            cuts = (np.cumsum(q / q.sum()) * 5000).astype(int)[:-1]
            counts[:, c] = np.diff([0, *cuts, 5000])
        if counts.sum(axis=1).min() >= 10:
            return counts


@pytest.mark.parametrize("scheme", ["dirichlet:1e6", "dirichlet-client:1e6", "dirichlet:1e6,balance=false"])
def test_large_alpha_gives_near_equal_histograms(scheme: str) -> None:
    p = partition(scheme, CIFAR, clients=10)
    spread = 5 if "client" not in scheme else 120  # shares are cut, classes are drawn
    assert np.abs(p.histogram - 500).max() <= spread


@pytest.mark.parametrize("seed", range(20))
def test_the_common_dirichlet_works_for_every_seed(seed: int) -> None:
    p = partition("dirichlet(0.1)", FASHION, clients=100, seed=seed)
    assert p.sizes.min() >= 10


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.6])
def test_dirichlet_is_as_skewed_as_the_literal_rule(alpha: float, balance: bool) -> None:
    draw = np.random.default_rng(5)
    text = f"dirichlet:{alpha},balance={balance}"
    ours = [partition(text, CIFAR, 100, seed).histogram for seed in range(12)]
    theirs = [literal_dirichlet(alpha, balance, draw) for _ in range(12)]
    for statistic, within in ((main_classes, 0.25), (lambda h: np.median(h.sum(axis=1)) / 100, 0.35)):
        assert np.mean([*map(statistic, ours)]) == pytest.approx(np.mean([*map(statistic, theirs)]), abs=within)


def test_balance_stops_at_the_fair_share() -> None:
    """A client passes its fair share with one class at most: without that class it is below."""
    p = partition("dirichlet(0.1)", CIFAR, clients=100)
    last = np.array([row[np.flatnonzero(row)[-1]] for row in p.histogram])
    assert np.all(p.sizes - last < 500)
    free = partition("dirichlet(0.1, balance=False)", CIFAR, clients=100)
    assert free.sizes.max() > p.sizes.max()


def test_dirichlet_that_cannot_work_says_what_does_and_soon() -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=r"1000 clients min_size=10 \(in each of 20 draws some fell short, \d+ on av"):
        partition("dirichlet(0.1)", FASHION, clients=1000)
    with pytest.raises(ValueError, match=r'or clients of equal size: --partition "dirichlet-client\(0.05\)"'):
        partition("dirichlet(0.05)", FASHION, clients=100)
    with pytest.raises(ValueError, match="100 samples do not give each of 20 clients min_size=10; use"):
        partition("dirichlet(1)", [0, 1] * 50, clients=20)
    assert time.process_time() - start < 20  # 0.7 s on a free core


@pytest.mark.parametrize("scheme", ["dirichlet-client(0.1)", "dirichlet-client(0.1, refill=True)"])
def test_client_wise_sizes_are_equal(scheme: str) -> None:
    p = partition(scheme, CIFAR, clients=300)
    assert set(p.sizes.tolist()) == {166} and p.describe()["samples"] == 49_800
    kept = partition("dirichlet-client(0.1, remainder=True)", CIFAR, clients=300)
    assert kept.covers and kept.sizes.tolist() == [167] * 200 + [166] * 100


@pytest.mark.parametrize(("alpha", "used"), [(0.1, 0.92), (0.3, 0.93), (0.6, 0.97)])
def test_refill_shares_samples_and_says_so(alpha: float, used: float) -> None:
    found = [partition(f"dirichlet-client:{alpha},refill=true", CIFAR, 100, seed) for seed in range(4)]
    assert np.mean([np.mean(p.uses > 0) for p in found]) == pytest.approx(used, abs=0.025)
    assert not found[0].disjoint and not found[0].covers
    assert found[0].describe()["shared"] and found[0].describe()["dropped"]


def test_client_wise_follows_the_priors_while_classes_last() -> None:
    """With samples to spare the classes of a client are drawn from one Dirichlet vector: its moments are known."""
    labels = np.repeat(np.arange(4), 5000)
    p = partition("dirichlet-client(0.5, refill=True)", labels, clients=200)
    shares = p.histogram / p.sizes[:, None]
    variance = 0.25 * 0.75 / (4 * 0.5 + 1)
    assert shares.var() == pytest.approx(variance + 0.25 * 0.75 * (1 - 1 / 3) / 100, rel=0.12)


@pytest.mark.parametrize("shape", [(100, 10, 2), (100, 10, 5), (100, 100, 15), (100, 200, 50), (7, 10, 3)])
def test_pathological_clients_have_exactly_their_classes(shape: tuple[int, int, int]) -> None:
    clients, classes, each = shape
    labels = np.repeat(np.arange(classes), 300)
    p = partition(f"classes:{each}", labels, clients)
    assert np.all((p.histogram > 0).sum(axis=1) == each)
    assert p.disjoint and p.covers
    held = (p.histogram > 0).sum(axis=0)
    assert np.ptp(held) <= 1 and held.sum() == clients * each
    if clients * each % classes == 0 and 300 % held[0] == 0:
        assert set(p.sizes.tolist()) == {300 * classes // clients}


@given(clients=st.integers(1, 30), classes=st.integers(1, 20), data=st.data(), seed=st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_a_deal_of_classes_always_succeeds(clients: int, classes: int, data: st.DataObject, seed: int) -> None:
    each = data.draw(st.integers(1, classes))
    held = holders(clients, classes, each, np.random.default_rng(seed))
    assert np.all(held.sum(axis=1) == each) and np.ptp(held.sum(axis=0)) <= 1


def test_long_tail() -> None:
    p = partition("longtail(100)", CIFAR, clients=10)
    assert p.histogram.sum(axis=0).tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert p.disjoint and not p.covers and p.describe()["dropped"] == 50_000 - 12_406
    skewed = partition("longtail(100, over=classes(2))", CIFAR, clients=10)
    assert np.array_equal(skewed.histogram.sum(axis=0), p.histogram.sum(axis=0))
    assert np.all((skewed.histogram > 0).sum(axis=1) == 2)
    whole = partition("longtail(1, over=dirichlet-client(0.1))", CIFAR, clients=10)
    assert whole.covers


def test_natural_clients_are_the_owners() -> None:
    owners = np.array(["b"] * 50 + ["c"] * 30 + ["a"] * 20)
    labels = np.arange(100) % 4
    p = partition("natural", labels, owners=owners)
    assert [own.tolist() for own in p.clients] == [list(range(80, 100)), list(range(50)), list(range(50, 80))]
    assert partition("natural(min_size=25)", labels, clients=2, owners=owners).sizes.tolist() == [50, 30]
    owners = np.random.default_rng(0).integers(0, 200, 20_000)
    labels = np.zeros(20_000, int)
    some = partition("natural(fraction=0.2)", labels, owners=owners)
    assert 0.2 <= some.sizes.sum() / 20_000 < 0.21 and some.disjoint
    assert len(partition("natural(users=0.2)", labels, owners=owners).clients) == 40
    assert all(len(set(owners[own])) == 1 for own in some.clients)


@pytest.mark.parametrize(
    "scheme",
    ["iid", "dirichlet(0.6)", "dirichlet-client(0.1)", "classes(2)", "longtail(10, over=dirichlet-client(0.1))"],
)
def test_a_thousand_clients_take_seconds_at_most(scheme: str) -> None:
    start = time.process_time()
    p = partition(scheme, FASHION, clients=1000)
    assert len(p.sha256) == 64 and p.histogram.shape == (1000, 10)
    assert time.process_time() - start < 10  # under 2 s on a free core


def test_quantity_skews_sizes_and_not_labels() -> None:
    p, even = partition("quantity(0.5)", FASHION, clients=100), partition("iid", FASHION, clients=100)
    assert p.sizes.min() >= 10 and p.sizes.max() > 4 * p.sizes.mean() and p.sizes.sum() == len(FASHION)
    large = p.histogram[p.sizes > 500] / p.sizes[p.sizes > 500, None]
    assert abs(large - 0.1).max() < 0.1  # ten classes of equal size
    assert partition("quantity:1e9", FASHION, clients=100).sizes.std() < 1 and even.sizes.std() == 0
    assert partition("quantity(0.5, min_size=600)", FASHION, clients=100).sizes.tolist() == [600] * 100


def test_quantity_that_cannot_work() -> None:
    with pytest.raises(
        ValueError, match=r"quantity\(0\.5\): 100 samples do not give each of 20 clients min_size=10; use fewer"
    ):
        partition("quantity(0.5)", [0, 1] * 50, clients=20)
    for text in ("quantity:0", "quantity:0.5,min_size=0"):
        with pytest.raises(ValueError, match="must be between"):
            partition(text, FASHION, clients=100)
