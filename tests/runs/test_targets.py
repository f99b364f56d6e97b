"""Targets as files write them, and what is refused."""

from math import inf, nan
from typing import Any

import pytest

from undrift.runs.settings.targets import Target, numbers, read_targets, split_targets


def test_every_form() -> None:
    assert read_targets(None) == () == read_targets([])
    assert read_targets(0.7) == (Target(0.7),) == read_targets([0.7])
    assert read_targets(1) == (Target(1.0),)
    mixed = read_targets([0.7, "baseline", " 0.95*baseline", "1.05 * baseline"])
    assert mixed == (Target(0.7), Target(1.0, True), Target(0.95, True), Target(1.05, True))
    assert [target.key for target in mixed] == [0.7, "baseline", "0.95 * baseline", "1.05 * baseline"]
    assert read_targets([target.key for target in mixed]) == mixed, "a key is read as its target"


def test_accuracies() -> None:
    assert [Target(0.5, relative).accuracy(0.8) for relative in (False, True)] == [0.5, 0.4]
    assert [Target(0.5, relative).accuracy(None) for relative in (False, True)] == [0.5, None]
    assert Target(1.0, True).accuracy(0.1 + 0.2) == 0.1 + 0.2, "exactly the best, or the baseline would miss its own"


@pytest.mark.parametrize(
    "value",
    [
        0,
        -0.1,
        1.1,
        70,
        nan,
        inf,
        True,
        "fedavg",
        "0.9",
        "0 * baseline",
        "1.2.3 * baseline",
        "baseline * 2",
        {},
        [[0.5]],
    ],
)
def test_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"target: must be a number in \(0, 1\], such as 0.7, or, in a comparison, "):
        read_targets([value])


def test_a_target_counts_once() -> None:
    with pytest.raises(ValueError, match="target: baseline is given 2 times; each counts once"):
        read_targets(["baseline", 0.5, "1.0 * baseline"])


def test_a_run_has_numbers() -> None:
    assert [numbers(value) for value in (None, [], 0.7, [0.7], [0.7, 0.8])] == [None, None, 0.7, (0.7,), (0.7, 0.8)]
    with pytest.raises(
        ValueError, match="'baseline' is for comparisons, and a single run has no baseline; write a num"
    ):
        numbers([0.5, "baseline"])


def test_a_comparison_gives_its_runs_the_numbers() -> None:
    share = (Target(0.5, True),)
    assert split_targets([0.7, "0.5 * baseline", 0.8]) == ([0.7, 0.8], share)
    assert split_targets("0.5 * baseline") == (None, share)
    assert [split_targets(value) for value in (None, 0.7, [0.7])] == [(None, ()), (0.7, ()), ([0.7], ())]
