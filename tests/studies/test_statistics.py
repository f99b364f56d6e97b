"""Means, deviations and paired intervals against numbers by hand, and the table they make."""

from math import inf, isnan, sqrt
from typing import Any

import numpy as np
import pytest

from undrift.runs.settings.targets import Target
from undrift.studies.statistics import Difference, cells, paired_difference, spread, summarise, to_markdown


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706205), (3, 4.302653), (5, 2.776445), (10, 2.262157)])
def test_the_interval_is_students(count: int, quantile: float) -> None:
    values = [0.1 * n for n in range(count)]
    found = paired_difference(seeds(*values), seeds(*[0.0] * count))
    deviation = 0.1 * sqrt(sum((n - (count - 1) / 2) ** 2 for n in range(count)) / (count - 1))
    assert found is not None and found.low is not None and found.high is not None and found.pairs == count
    assert found.mean == pytest.approx(0.1 * (count - 1) / 2)
    assert (found.high - found.low) / 2 == pytest.approx(quantile * deviation / sqrt(count), rel=1e-6)


def test_by_hand() -> None:
    """d = 1, 2, 6: mean 3, sd sqrt(7); 3 +- 4.30265273 * 1.52752523 = 3 +- 6.57241061."""
    found = paired_difference(seeds(11, 22, 36), seeds(10, 20, 30))
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((3, -3.57241061, 9.57241061), abs=1e-7)


def test_pairs_are_those_of_the_same_seed() -> None:
    ours, theirs = {7: 0.5, 3: 0.25, 1: 0.9}, {3: 0.5, 7: 0.25, 2: 0.1}
    found = paired_difference(ours, theirs)
    assert found is not None and found.pairs == 2 and found.mean == pytest.approx((0.25 - 0.25) / 2)
    assert paired_difference({0: 0.75}, {0: 0.5, 1: 0.0}) == Difference(0.25, None, None, 1)
    assert paired_difference({0: 0.75}, {1: 0.5}) is None


def test_infinite_values_have_a_mean_and_no_interval() -> None:
    assert spread([1.0, inf]) == (inf, None) and paired_difference(seeds(inf, 2), seeds(1, 1)) == Difference(
        inf, None, None, 2
    )
    assert isnan(spread([inf, -inf])[0])


def test_a_level_is_a_fraction() -> None:
    with pytest.raises(ValueError, match=r"paired_difference: level must be a fraction in .* got 95"):
        paired_difference(seeds(1), seeds(1), 95)


@pytest.mark.parametrize("count", [3, 5])
def test_the_interval_covers_as_often_as_it_says(count: int) -> None:
    """Seeds shift both methods alike, as data do: pairs are free of that, so intervals stay narrow and honest."""
    draw, held, trials, width = np.random.default_rng(count), 0, 4000, 0.0
    for _ in range(trials):
        common = draw.normal(0, 10, count)
        theirs, ours = common + draw.normal(0, 1, count), common + draw.normal(0.5, 1, count)
        found = paired_difference(seeds(*ours), seeds(*theirs))
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 0.5 <= found.high
        width += (found.high - found.low) / trials
    assert held / trials == pytest.approx(0.95, abs=4 * sqrt(0.95 * 0.05 / trials))
    assert width < 2 * 4.4 * sqrt(2 / count)


def test_spread_is_that_of_a_sample() -> None:
    assert spread([2.0, 4.0, 9.0]) == (5.0, pytest.approx(sqrt(13)))  # type: ignore[comparison-overlap]
    assert spread([2.0]) == (2.0, None)


def run(last: float, reached: int | None = None, **more: Any) -> dict[str, Any]:
    numbers = {"best_accuracy": last + 0.01, "accuracy": last, "gradients": 100, "traffic": 1.0}
    curve = [{"accuracy": 0.5, "rounds": reached, "gradients": 10, "bytes": 8, "seconds": 1.0}] if reached else []
    return {**numbers, "seconds_per_round": 0.5, "targets": [Target(0.5)], "curve": curve, **more}


RUNS = {
    "fedavg": {0: run(0.5, 8), 1: run(0.6, 4), 2: run(0.4)},
    "mine": {0: run(0.6, 3, traffic=1.5), 1: run(0.7, 4, traffic=1.5), 2: run(0.5, 9, traffic=1.5)},
    "never": {0: run(0.1)},
    "later": {},
}


def test_rows() -> None:
    fedavg, mine, never = summarise(RUNS, "fedavg")
    assert (fedavg["last"], fedavg["last_std"]) == pytest.approx((0.5, 0.1))
    assert (fedavg["best"], fedavg["best_std"]) == pytest.approx((0.51, 0.1))
    assert fedavg["rounds_to_target"] == 6.0 and fedavg["reached"] == 2, "the mean over those that reached it"
    assert "last_difference" not in fedavg and fedavg["traffic"] == 1.0
    assert (mine["last_difference"], mine["last_low"], mine["last_high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert mine["traffic"] == 1.5 and mine["pairs"] == 3 and mine["seeds"] == [0, 1, 2]
    assert never["last_difference"] == pytest.approx(-0.4) and never["last_low"] is None
    assert never["rounds_to_target"] is None and never["reached"] == 0 and never["last_std"] is None


def test_markdown() -> None:
    lines = to_markdown(summarise(RUNS, "fedavg")).splitlines()
    heading = "| method | seeds | best % | last % | last vs fedavg | best vs fedavg | rounds to target | traffic |"
    assert lines[0] == f"{heading} s/round | gradients |"
    assert lines[1] == "| --- |" + " ---: |" * 9
    assert lines[2] == "| fedavg | 3 | 51.00 ± 10.00 | 50.00 ± 10.00 | - | - | 6.0 (2/3) | 1.00x | 0.5 | 100 |"
    assert "+10.00 [+10.00, +10.00] | 5.3 (3/3) | 1.50x" in lines[3]
    assert "| -40.00 | -40.00 | - (0/1) |" in lines[4], "one seed has no interval"
    assert len(lines) == 5 and to_markdown([]) == ""


def test_a_column_is_there_if_somebody_has_a_value() -> None:
    plain = {"a": {0: run(0.5, targets=[])}, "b": {0: run(0.5, targets=[], personal_accuracy=0.75)}}
    headings, texts = cells(summarise(plain, "a"))
    assert "personal %" in headings and "rounds to target" not in headings and "clients %" not in headings
    column = headings.index("personal %")
    assert [row[column] for row in texts] == ["-", "75.00"]
    headings, texts = cells([{"setting": "hard", **row} for row in summarise(plain, "a")])
    assert headings[0] == "setting" and texts[0][0] == "hard"
