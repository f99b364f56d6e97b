"""The late accuracy of a study's runs and the paired differences of its rows.

A run's result is its late accuracy: the mean of its last three evaluations, because with few clients in a round the
accuracy of a single round is noisy. Differences are paired by seed, with Student's interval, of 95 % unless it is
corrected.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from undrift.studies.statistics import LEVEL, Difference, late_mean, paired_difference

Lines = list[dict[str, Any]]
Values = dict[int, float]


def late(line: Mapping[str, Any]) -> float:
    """The late accuracy of a run, in percent.

    Args:
        line: of the raw results.
    """
    return 100 * late_mean([value for _, value in line["curve"]])


def values(lines: Iterable[Mapping[str, Any]], setting: str, label: str) -> Values:
    """Seed -> late accuracy of a row in one setting.

    Args:
        lines: the raw results.
        setting: the part of the study.
        label: the row.
    """
    return {line["seed"]: late(line) for line in lines if (line["setting"], line["label"]) == (setting, label)}


def gap(lines: Lines, setting: str, label: str, other: str, level: float = LEVEL) -> Difference | None:
    """The paired difference of two rows in one setting; None without a common seed.

    Args:
        lines: the raw results.
        setting: the part of the study.
        label: the row.
        other: the row to compare with.
        level: of the interval.
    """
    return paired_difference(values(lines, setting, label), values(lines, setting, other), level)


def all_gaps(
    study: Mapping[str, Any], lines: Lines, baseline: str, level: float = LEVEL
) -> dict[str, dict[str, Difference]]:
    """Setting -> row -> the paired difference from the baseline.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        baseline: the row that differences are taken from.
        level: of the intervals.
    """
    labels = [row["label"] for row in study["methods"] if row["label"] != baseline]
    return {
        setting: {label: x for label in labels if (x := gap(lines, setting, label, baseline, level)) is not None}
        for setting in study["settings"]
    }
