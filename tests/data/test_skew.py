"""How clients' data differ: label, quantity and feature skew, each 0 where there is none."""

import numpy as np
import pytest
import torch

from undrift.data import DataSkew, load, measure_skew, partition
from undrift.data.arrays.dataset import Dataset, Split
from undrift.data.partitions.skew import feature_skew, gini, label_skew, statistics_of
from undrift.data.tasks.corruption import corrupted

LABELS = np.arange(20_000) % 10
DRAW = np.random.default_rng(0)


def images(count: int = 20_000) -> np.ndarray:
    """Smooth pictures: a ramp of random slope with a little noise."""
    slope = DRAW.uniform(50, 150, (count, 1, 1, 1))
    ramp = np.linspace(0, 1, 8)[None, None, :, None] * np.ones((1, 1, 8, 8))
    return np.clip(slope * ramp + DRAW.normal(0, 4, (count, 1, 8, 8)), 0, 255).astype(np.uint8)


def of(inputs: np.ndarray, targets: np.ndarray = LABELS, kind: str = "image") -> Dataset:
    split = Split(torch.from_numpy(inputs), torch.from_numpy(targets))
    return Dataset("own", kind, split, split, 10, (0.0,), (1.0,), "own")


def test_random_clients_do_not_differ() -> None:
    found = measure_skew(of(images()), partition("iid", LABELS, clients=100).clients)
    assert found.label == pytest.approx(0, abs=0.02) and found.quantity == 0 and found.feature == 0
    assert found.clients == 100


@pytest.mark.parametrize(
    ("scheme", "label", "quantity"),
    [
        ("classes:1", (0.85, 0.9), (0.0, 0.05)),
        ("dirichlet-client:0.1", (0.55, 0.8), (0.0, 0.01)),
        ("quantity:0.3", (0.0, 0.02), (0.55, 0.8)),
    ],
)
def test_each_kind_alone(scheme: str, label: tuple[float, float], quantity: tuple[float, float]) -> None:
    found = measure_skew(of(images()), partition(scheme, LABELS, clients=100).clients)
    assert found.label is not None and label[0] <= found.label <= label[1]
    assert quantity[0] <= found.quantity <= quantity[1] and found.feature == pytest.approx(0, abs=0.02)


def test_label_skew_by_hand() -> None:
    """Two clients, two classes, nothing in common: the distance is 1/2, the largest there is with this pool.

    Chance is 2 sqrt(1/4 / (2 pi 100)) = 0.0399; (0.5 - 0.0399) / (1 - 0.0399) = 0.4792.
    """
    assert label_skew(np.array([[100, 0], [0, 100]])) == pytest.approx(0.4792, abs=1e-4)
    assert label_skew(np.array([[50, 50], [50, 50]])) == 0


def test_gini_by_hand() -> None:
    assert gini(np.array([5.0, 5.0])) == 0
    assert gini(np.array([1.0, 3.0])) == pytest.approx(0.25)  # mean difference 1 over twice the mean 2


@pytest.mark.parametrize("kinds", [("gaussian-noise", ""), ("brightness", ""), ("gaussian-noise", "fog")])
def test_corrupted_clients_differ_in_inputs(kinds: tuple[str, str]) -> None:
    clients = partition("iid", LABELS[:4000], clients=20).clients
    owners = np.empty(4000, np.int64)
    for number, own in enumerate(clients):
        owners[own] = number
    changed = corrupted(images(4000), np.array(kinds)[owners % 2], 0)
    found = measure_skew(of(changed, LABELS[:4000]), clients)
    assert found.feature is not None and found.feature > 0.1 and found.label == pytest.approx(0, abs=0.02)


def test_label_skew_alone_is_no_feature_skew() -> None:
    """Classes that look different do not count: inputs are compared within a class."""
    inputs = (images() + (20 * LABELS)[:, None, None, None].astype(np.uint8)).astype(np.uint8)
    found = measure_skew(of(inputs), partition("dirichlet:0.1", LABELS, clients=50).clients)
    assert found.feature == pytest.approx(0, abs=0.02) and found.label is not None and found.label > 0.5


@pytest.mark.quick
def test_tables_and_text() -> None:
    rows = DRAW.normal(size=(2000, 5)).astype(np.float32)
    rows[:1000, 3] += 2
    split = [np.arange(0, 1000), np.arange(1000, 2000)]
    found = measure_skew(of(rows, LABELS[:2000], "table"), split)
    assert found.feature is not None and found.feature > 0.3
    text = of(DRAW.integers(0, 9, (2000, 5)), LABELS[:2000], "text")
    assert measure_skew(text, split) == DataSkew(found.label, 0.0, None, 2)
    numbers = Split(torch.from_numpy(rows), torch.randn(2000))
    table = Dataset("own", "table", numbers, numbers, 0, (0.0,) * 5, (1.0,) * 5, "own")
    assert measure_skew(table, split).label is None


def test_parts() -> None:
    values = statistics_of(torch.from_numpy(images(50)), np.random.default_rng(0))
    assert values.shape == (50, 12)
    same = feature_skew(values, np.arange(50) % 5, np.zeros(50, np.int64), np.random.default_rng(0))
    assert same == pytest.approx(0, abs=0.1)


def test_digits() -> None:
    data = load("digits")
    even, skewed = (
        measure_skew(data, partition(scheme, data.train.targets.numpy(), clients=20).clients)
        for scheme in ("iid", "dirichlet:0.1")
    )
    assert even.label is not None and skewed.label is not None and even.label < 0.05 < 0.5 < skewed.label
