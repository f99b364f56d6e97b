"""Recommends a composition for data with a measured skew, from results on the measured problems with similar skew.

`evidence.json` has the accuracies of the studies in docs/evidence/results; `make results` writes it. Methods are
compared with `BASELINE`, FedAvg with equal weights, paired by seed: the same partition, cohorts and initial weights.
Studies under the strict protocol count before older ones: of a method that has such evidence, nothing else is used,
also if it has other numbers as arguments there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import takewhile
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter
from torch import nn

from undrift.data.partitions.skew import DataSkew
from undrift.studies.statistics import Difference, corrected_level, paired_difference

BASELINE = "uniform"
"""The method that differences are taken from."""
NEAR = 0.25
"""Problems at most this far away count as evidence."""
SEEDS = 3
"""A difference of fewer pairs is no evidence."""
_SCALES = {"label": 1.0, "quantity": 0.5, "feature": 1.5}
"""How much a difference in each kind of skew counts; the measured range of `feature` is smaller."""


@dataclass(frozen=True)
class Row:
    """A method on a problem.

    Args:
        method: the composition.
        stateless: whether clients keep nothing between rounds.
        gradients: gradient evaluations per step, in units of FedAvg's.
        traffic: bytes per round, in units of FedAvg's.
        accuracy: seed -> late accuracy in percent.
        step: seconds of a local step, in units of the baseline's; None where they were not measured.
    """

    method: str
    stateless: bool
    gradients: float
    traffic: float
    accuracy: Mapping[int, float]
    step: float | None = None


@dataclass(frozen=True)
class Problem:
    """A setting of a study, and the methods that were measured in it.

    Args:
        study: the page of docs/evidence/results.
        data: the data set.
        kind: "image", "text" or "table".
        model: the model.
        family: of the model, see `family`.
        partition: how the data were split.
        skew: what `measure_skew` finds there: label, quantity and feature.
        clients: how many there are; None if the data decide.
        cohort: how many take part in a round.
        rounds: how long the training was.
        rows: what was measured.
        claims: how many intervals of the study hold together, under the strict protocol; 0 of an older study.
    """

    study: str
    data: str
    kind: str
    model: str
    family: str
    partition: str
    skew: Mapping[str, float]
    clients: int | None
    cohort: int
    rounds: int
    rows: tuple[Row, ...]
    claims: int = 0

    @property
    def older(self) -> bool:
        """Whether the study was not made under the strict protocol."""
        return not self.claims

    def difference(self, ours: str, theirs: str) -> Difference | None:
        """The paired difference of two methods, in points; None if there are fewer than `SEEDS` pairs.

        Args:
            ours: a composition.
            theirs: the one that it is compared with.
        """
        accuracy = {row.method: row.accuracy for row in self.rows}
        if ours not in accuracy or theirs not in accuracy:
            return None
        found = paired_difference(accuracy[ours], accuracy[theirs], corrected_level(max(1, self.claims)))
        return found if found is not None and found.pairs >= SEEDS else None


@dataclass(frozen=True)
class Case:
    """A difference from the baseline, in points of accuracy, with its paired interval.

    The interval has 95 %; of a strict study, together with all others of the study.

    Args:
        problem: where it was measured.
        difference: the mean difference.
        low: the lower end of its interval.
        high: the upper end.
        seeds: how many pairs.
        step: seconds of a local step, in units of the baseline's; None where they were not measured.
    """

    problem: Problem
    difference: float
    low: float
    high: float
    seeds: int
    step: float | None = None


@dataclass(frozen=True)
class Choice:
    """A composition and the evidence for it.

    Args:
        method: the composition.
        cases: one for each data set, model and partition.
        confidence: "strong", "moderate", "weak" or "none".
    """

    method: str
    cases: tuple[Case, ...]
    confidence: str

    @property
    def difference(self) -> float | None:
        """The mean of the differences from the baseline, in points; None for the baseline itself."""
        return fmean(case.difference for case in self.cases) if self.cases else None

    @property
    def wins(self) -> int:
        """Cases whose interval is above zero."""
        return sum(case.low > 0 for case in self.cases)

    @property
    def older(self) -> bool:
        """Whether the evidence is that of older studies, which do not meet the strict protocol."""
        return any(case.problem.older for case in self.cases)

    @property
    def losses(self) -> int:
        """Cases whose interval is below zero."""
        return sum(case.high < 0 for case in self.cases)


@lru_cache(maxsize=1)
def evidence() -> tuple[Problem, ...]:
    """The measured problems that this version comes with."""
    text = files("undrift.studies").joinpath("evidence.json").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Problem, ...]).validate_json(text)


def family(module: nn.Module) -> str:
    """What a model mostly consists of: "convolutional", "recurrent", "attention" or "dense".

    Args:
        module: the model.

    Example:
        >>> family(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)))
        'convolutional'
    """
    parts = list(module.modules())
    if any(isinstance(part, nn.MultiheadAttention) for part in parts):
        return "attention"
    if any(isinstance(part, nn.RNNBase) for part in parts):
        return "recurrent"
    return "convolutional" if any(isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d) for part in parts) else "dense"


def distance(skew: DataSkew, other: Mapping[str, float]) -> float:
    """The distance between the skew of data and that of a problem: the largest of their scaled differences.

    Args:
        skew: of the data; a kind that was not measured, here or there, does not count.
        other: of the problem.
    """
    own: dict[str, float | None] = asdict(skew)
    known = {kind: value for kind in _SCALES if kind in other and (value := own[kind]) is not None}
    return max((_SCALES[kind] * abs(value - other[kind]) for kind, value in known.items()), default=0.0)


def advise(
    skew: DataSkew,
    problems: Sequence[Problem] | None = None,
    *,
    kind: str = "image",
    family: str = "convolutional",
    stateless: bool = False,
    gradients: float | None = None,
    traffic: float | None = None,
) -> list[Choice]:
    """Compositions for data with this skew, the best first; the baseline is always among them.

    Evidence are the problems within `NEAR`, with data of the same kind and a model of the same family. A composition
    that lost to the baseline in none of them and won in half of them or more comes before it; all others come after it.
    Those with weak evidence come after those with more, and those with older evidence after those from studies under
    the strict protocol. Otherwise a composition's place is decided by how many of the
    others it is better than, on average over the data sets, models and partitions in which both were measured.

    Args:
        skew: what `measure_skew` found.
        problems: the evidence; None takes `evidence()`.
        kind: of the data: "image", "text" or "table".
        family: of the model, see the function `family`.
        stateless: only compositions whose clients keep nothing between rounds.
        gradients: the most gradient evaluations per step, in units of FedAvg's.
        traffic: the most bytes per round, in units of FedAvg's.
    """
    known = evidence() if problems is None else problems
    near = [x for x in known if (x.kind, x.family) == (kind, family) and distance(skew, x.skew) <= NEAR]
    methods = dict.fromkeys(
        row.method
        for problem in near
        for row in problem.rows
        if (row.stateless or not stateless)
        and (gradients is None or row.gradients <= gradients)
        and (traffic is None or row.traffic <= traffic)
    )
    chosen = {method: _choice(method, near) for method in methods if method != BASELINE}
    found = [choice for choice in chosen.values() if choice.cases]
    strict = {_without_numbers(choice.method) for choice in found if not choice.older}
    found = [choice for choice in found if not choice.older or _without_numbers(choice.method) not in strict]
    standing = {choice.method: _standing(choice, found) for choice in found}
    found.sort(key=lambda choice: (choice.confidence == "weak", choice.older, -standing[choice.method]))
    before = [choice for choice in found if not choice.losses and 2 * choice.wins >= len(choice.cases)]
    after = [choice for choice in found if choice not in before]
    return [*before, Choice(BASELINE, (), "weak" if near else "none"), *after]


def level_with_first(choices: Sequence[Choice]) -> list[Choice]:
    """The recommended compositions that no interval separates from the first, in its own order; without the first.

    Their protocol is that of the first, and each was measured with it in at least one problem.

    Args:
        choices: from `advise`.
    """
    first, *others = choices
    found = []
    for choice in takewhile(lambda choice: choice.method != BASELINE, others):
        gaps = [x for case in first.cases if (x := case.problem.difference(choice.method, first.method)) is not None]
        separated = any(x.low is None or x.high is None or x.low > 0 or x.high < 0 for x in gaps)
        if choice.older == first.older and gaps and not separated:
            found.append(choice)
    return found


def _without_numbers(method: str) -> str:
    """A composition without arguments that are numbers: "whitened(share=0.05)" is "whitened"."""
    return re.sub(r"\((?:\w+=)?[-+.e\d]+(?:, ?(?:\w+=)?[-+.e\d]+)*\)", "", method)


def _choice(method: str, near: Sequence[Problem]) -> Choice:
    """A composition with its cases, those of strict studies if there are any.

    Of several studies with one data set, model and partition it is the one with the most seeds.
    """
    found: dict[tuple[str, str, str], Case] = {}
    for problem in near:
        gap = problem.difference(method, BASELINE)
        if gap is not None and gap.low is not None and gap.high is not None:
            key = problem.data, problem.model, problem.partition
            rank = (not problem.older, gap.pairs)
            if key not in found or rank > (not found[key].problem.older, found[key].seeds):
                step = next(row.step for row in problem.rows if row.method == method)
                found[key] = Case(problem, gap.mean, gap.low, gap.high, gap.pairs, step)
    strict = tuple(case for case in found.values() if not case.problem.older)
    cases = strict or tuple(found.values())
    return Choice(method, cases, _confidence(cases))


def _confidence(cases: Sequence[Case]) -> str:
    """Strong: three cases or more, on two data sets, all intervals on one side of zero; moderate: two or more are."""
    above, below = sum(case.low > 0 for case in cases), sum(case.high < 0 for case in cases)
    clear = max(above, below)
    if clear >= 3 and clear == len(cases) and len({case.problem.data for case in cases}) >= 2:
        return "strong"
    return "moderate" if clear >= 2 and not min(above, below) else "weak"


def _standing(choice: Choice, others: Sequence[Choice]) -> float:
    """From -1, worse than all others, to 1, better than all; each is compared in the cases that both have.

    Two methods of one case need not be rows of one study: each is compared by its difference from the baseline there.
    """
    own, signs = _gains(choice), []
    for other in others:
        theirs = _gains(other)
        common = [own[case] - theirs[case] for case in own if case in theirs]
        if other is not choice and common:
            mean = fmean(common)
            signs.append((mean > 0) - (mean < 0))
    return fmean(signs) if signs else 0.0


def _gains(choice: Choice) -> dict[tuple[str, str, str], float]:
    """Data set, model and partition -> the difference from the baseline."""
    return {(x.problem.data, x.problem.model, x.problem.partition): x.difference for x in choice.cases}


def as_record(skew: DataSkew, choices: Sequence[Choice]) -> dict[str, Any]:
    """Skew and choices as JSON has them.

    Args:
        skew: of the data.
        choices: from `advise`.
    """
    level = [choice.method for choice in level_with_first(choices)]
    made = [_record(choice) for choice in choices]
    return {"skew": asdict(skew), "baseline": BASELINE, "level_with_first": level, "choices": made}


def _record(choice: Choice) -> dict[str, Any]:
    shown = ("study", "data", "model", "partition", "clients", "cohort", "rounds")
    numbers = ("difference", "low", "high", "seeds", "step")
    cases = [
        {key: getattr(case.problem, key) for key in shown}
        | {key: getattr(case, key) for key in numbers}
        | {"protocol": "older" if case.problem.older else "strict"}
        for case in choice.cases
    ]
    summary = {"difference": choice.difference, "wins": choice.wins, "losses": choice.losses}
    return {"method": choice.method, **summary, "confidence": choice.confidence, "cases": cases}
