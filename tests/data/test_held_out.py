"""Examples held out from training: a tenth of owners and classes alike."""

import numpy as np
import pytest

from undrift.data.own.split import hold_out


def test_a_test_set_is_held_out_evenly() -> None:
    owners = np.repeat(np.arange(10), 10)
    held = hold_out({"train-inputs": np.arange(100), "train-targets": np.arange(100) % 2, "train-owners": owners}, 0.1)
    assert np.bincount(held["test-owners"]).tolist() == [1] * 10 and len(held["train-inputs"]) == 90
    assert set(held["train-inputs"]) | set(held["test-inputs"]) == set(range(100))


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize(("owners", "classes", "each"), [(50, 10, 1), (50, 4, 5), (40, 2, 5), (7, 3, 11), (200, 1, 3)])
def test_owners_and_classes_have_the_share(owners: int, classes: int, each: int, share: float) -> None:
    count = owners * classes * each
    place = np.random.default_rng(0).permutation(count)
    arrays = {
        "train-inputs": np.arange(count),
        "train-targets": (place // each) % classes,
        "train-owners": 3 * (place // (each * classes)),
    }
    held = hold_out(arrays, share)
    for part, groups, size in (("owners", 3 * owners, classes * each), ("targets", classes, owners * each)):
        found = np.bincount(held[f"test-{part}"], minlength=groups)
        found = found[::3] if part == "owners" else found
        bound = 1 if part == "owners" else 1.5
        assert np.abs(found - share * size).max() < bound, part
    cells = np.bincount(held["test-owners"] // 3 * classes + held["test-targets"], minlength=owners * classes)
    assert np.abs(cells - share * each).max() < 1
    assert len(held["test-inputs"]) == int(share * count + 0.5)


def test_owners_with_one_class_each_give_every_class_its_share() -> None:
    owners = np.arange(200)
    held = hold_out({"train-inputs": owners, "train-targets": owners % 10, "train-owners": owners}, 0.1)
    assert np.bincount(held["test-targets"]).tolist() == [2] * 10


def test_unequal_owners_and_classes() -> None:
    draw = np.random.default_rng(1)
    owners = np.sort(draw.integers(0, 60, 3000) ** 2 // 60)
    targets = np.minimum(draw.geometric(0.3, 3000) - 1, 7)
    held = hold_out({"train-inputs": owners, "train-targets": targets, "train-owners": owners}, 0.1)
    for part, whole in (("owners", owners), ("targets", targets)):
        size = np.bincount(whole)
        assert np.abs(np.bincount(held[f"test-{part}"], minlength=len(size)) - 0.1 * size).max() < 2
