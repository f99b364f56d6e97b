"""Which composition to use for data that differ in a measured way: the nearest measured cases decide.

`evidence.json` has the paired differences from FedAvg of the studies in docs/results; `make results` writes it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from math import inf
from statistics import fmean
from typing import Any

from undrift.data.skew import DataSkew

NEAR = 0.25
"""Cases at most this far away count as evidence."""
_STRENGTHS = ("strong", "moderate", "weak")
_SCALES = {"label": 1.0, "quantity": 0.5, "feature": 1.5}
"""How much a difference in each kind of skew counts; the measured range of `feature` is smaller."""


@dataclass(frozen=True)
class Case:
    """A measured difference from FedAvg, in points of accuracy, with its paired 95 % interval.

    Args:
        study: the page of docs/results.
        data: the data set.
        model: the model.
        partition: how the data were split.
        skew: what `measure_skew` finds there: label, quantity and feature.
        label: the name of the composition in the study.
        method: the composition.
        baseline: what it is compared with: "fedavg", or "uniform", FedAvg with equal weights.
        stateless: whether clients keep nothing between rounds.
        gradients: gradient evaluations per step, in units of FedAvg's.
        traffic: bytes per round, in units of FedAvg's.
        seeds: how many seeds.
        difference: the mean difference.
        low: the lower end of its interval.
        high: the upper end.
    """

    study: str
    data: str
    model: str
    partition: str
    skew: Mapping[str, float]
    label: str
    method: str
    baseline: str
    stateless: bool
    gradients: float
    traffic: float
    seeds: int
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Choice:
    """A composition and the evidence for it.

    Args:
        method: the composition.
        difference: the mean of the cases' differences from FedAvg, in points; None for FedAvg itself.
        wins: cases whose interval is above zero.
        losses: cases whose interval is below zero.
        cases: the cases.
        confidence: "strong", "moderate", "weak" or "none".
    """

    method: str
    difference: float | None
    wins: int
    losses: int
    cases: tuple[Case, ...]
    confidence: str


@lru_cache(maxsize=1)
def evidence() -> tuple[Case, ...]:
    """The measured cases that this version comes with."""
    text = files("undrift.experiment").joinpath("evidence.json").read_text(encoding="utf-8")
    return tuple(Case(**row) for row in json.loads(text))


def distance(skew: DataSkew, other: Mapping[str, float]) -> float:
    """How far data are from those of a case; a kind of skew that was not measured does not count.

    Args:
        skew: of the data.
        other: of the case.
    """
    own: dict[str, float | None] = asdict(skew)
    known = {kind: value for kind in _SCALES if (value := own[kind]) is not None}
    return sum(_SCALES[kind] * abs(value - other[kind]) for kind, value in known.items())


def once(cases: Iterable[Case]) -> list[Case]:
    """Of dependent cases, with one composition, data set, model and partition, the one with the most seeds.

    Args:
        cases: the evidence.
    """
    found: dict[tuple[str, str, str, str], Case] = {}
    for case in cases:
        key = case.method, case.data, case.model, case.partition
        if key not in found or case.seeds > found[key].seeds:
            found[key] = case
    return list(found.values())


def advise(
    skew: DataSkew,
    cases: Sequence[Case] | None = None,
    *,
    stateless: bool = False,
    gradients: float | None = None,
    traffic: float | None = None,
) -> list[Choice]:
    """Compositions for data with this skew, the best first; FedAvg is always among them.

    Of the cases within `NEAR`, a composition that lost in none and won in half of them or more comes before FedAvg; all
    others come after it. Compositions are ordered by the strength of their evidence, then by how far they are, on
    average, behind the best of the same study and setting: not all were measured in the same ones.

    Args:
        skew: what `measure_skew` found.
        cases: the evidence; None takes `evidence()`.
        stateless: only compositions whose clients keep nothing between rounds.
        gradients: the most gradient evaluations per step, in units of FedAvg's.
        traffic: the most bytes per round, in units of FedAvg's.
    """
    near = [case for case in (evidence() if cases is None else cases) if distance(skew, case.skew) <= NEAR]
    allowed = [
        case
        for case in near
        if (case.stateless or not stateless)
        and (gradients is None or case.gradients <= gradients)
        and (traffic is None or case.traffic <= traffic)
    ]
    methods = dict.fromkeys(case.method for case in allowed)
    found = [_choice(method, once(case for case in allowed if case.method == method)) for method in methods]
    best: dict[tuple[str, str], float] = {}
    for case in allowed:
        best[case.study, case.partition] = max(case.difference, best.get((case.study, case.partition), -inf))
    behind = {
        method: fmean(best[c.study, c.partition] - c.difference for c in allowed if c.method == method)
        for method in methods
    }
    found.sort(key=lambda choice: (_STRENGTHS.index(choice.confidence), behind[choice.method]))
    before = [choice for choice in found if not choice.losses and 2 * choice.wins >= len(choice.cases)]
    after = [choice for choice in found if choice not in before]
    return [*before, Choice("fedavg", None, 0, 0, (), "weak" if near else "none"), *after]


def _choice(method: str, cases: list[Case]) -> Choice:
    wins, losses = sum(case.low > 0 for case in cases), sum(case.high < 0 for case in cases)
    return Choice(method, fmean(case.difference for case in cases), wins, losses, tuple(cases), _confidence(cases))


def _confidence(cases: Sequence[Case]) -> str:
    """Strong: three cases or more, on two data sets, all intervals on one side of zero; moderate: two or more are."""
    above, below = sum(case.low > 0 for case in cases), sum(case.high < 0 for case in cases)
    clear = max(above, below)
    if clear >= 3 and clear == len(cases) and len({case.data for case in cases}) >= 2:
        return "strong"
    return "moderate" if clear >= 2 and not min(above, below) else "weak"


def as_record(skew: DataSkew, choices: Sequence[Choice]) -> dict[str, Any]:
    """Skew and choices as JSON has them.

    Args:
        skew: of the data.
        choices: from `advise`.
    """
    return {
        "skew": asdict(skew),
        "choices": [
            {
                "method": choice.method,
                "difference": choice.difference,
                "wins": choice.wins,
                "losses": choice.losses,
                "confidence": choice.confidence,
                "cases": [
                    {"study": case.study, "data": case.data, "model": case.model, "partition": case.partition}
                    | {
                        "baseline": case.baseline,
                        "difference": case.difference,
                        "low": case.low,
                        "high": case.high,
                        "seeds": case.seeds,
                    }
                    for case in choice.cases
                ],
            }
            for choice in choices
        ],
    }
