"""Recommendations: from the nearest measured problems, within limits, and as sure as these allow."""

from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from undrift.data.partitions.skew import DataSkew
from undrift.studies.advise import Problem, Row, advise, as_record, distance, evidence, family, level_with_first

STRONG, EVEN = DataSkew(0.7, 0.4, 0.0, 100), DataSkew(0.0, 0.0, 0.0, 100)


def row(method: str, gain: float, spread: float = 0.1, seeds: int = 3, **changed: Any) -> Row:
    """A method whose differences from the baseline, which has 50 with every seed, are around `gain`."""
    offsets = [spread * (seed - (seeds - 1) / 2) for seed in range(seeds)]
    accuracy = {seed: 50 + gain + offset for seed, offset in enumerate(offsets)}
    values = {"method": method, "stateless": True, "gradients": 1.0, "traffic": 1.0, "accuracy": accuracy, **changed}
    return Row(**values)


def problem(*rows: Row, data: str = "cifar10", label: float = 0.7, **changed: Any) -> Problem:
    skew = {"label": label, "quantity": 0.4 if label else 0.0, "feature": 0.0}
    values = {
        **{"study": "s", "data": data, "kind": "image", "model": "m", "family": "convolutional", "partition": "p"},
        **{"skew": skew, "clients": 100, "cohort": 10, "rounds": 30, "rows": (row("uniform", 0, 0, 9), *rows)},
    }
    return Problem(**{**values, **changed})


def names(*problems: Problem, skew: DataSkew = STRONG, **limits: Any) -> list[str]:
    return [choice.method for choice in advise(skew, problems, **limits)]


@pytest.mark.quick
def test_the_best_that_never_lost_comes_first() -> None:
    one = problem(row("a", 2), row("b", 8), row("c", 1, spread=9))
    other = problem(row("a", 3), row("b", -2), data="digits")
    found = advise(STRONG, [one, other])
    assert [choice.method for choice in found] == ["a", "uniform", "b", "c"], "b lost once, c never won"
    assert (found[0].wins, found[0].losses, found[0].difference, found[0].confidence) == (2, 0, 2.5, "moderate")
    assert found[2].losses == 1 and found[3].confidence == "weak"


def test_what_no_interval_separates_from_the_first() -> None:
    """Of differences 1, 2, 3 the interval is 2 +- 2.5, see below; `c` is always one point behind, `d` is older."""
    rows = row("a", 5), row("b", 3, spread=1.1), row("c", 4), row("e", 0)
    strict = [problem(*rows, data=data, claims=1) for data in ("cifar10", "digits")]
    older = [problem(row("a", 5), row("d", 5), data=data, study="old") for data in ("cifar10", "digits")]
    found = advise(STRONG, [*strict, *older])
    assert [choice.method for choice in found][:5] == ["a", "c", "b", "d", "uniform"]
    assert [choice.method for choice in level_with_first(found)] == ["b"]
    assert as_record(STRONG, found)["level_with_first"] == ["b"]
    assert level_with_first(advise(STRONG, [])) == []


def test_the_seconds_of_a_step_are_those_of_the_case() -> None:
    choices = advise(STRONG, [problem(row("a", 5, step=1.5), data="digits"), problem(row("a", 4))])
    assert {case.problem.data: case.step for case in choices[0].cases} == {"digits": 1.5, "cifar10": None}
    assert {case["step"] for case in as_record(STRONG, choices)["choices"][0]["cases"]} == {1.5, None}


def test_differences_are_paired_by_seed() -> None:
    """By hand: the differences 1, 2, 3 have the mean 2 and, with t = 4.303, the interval 2 +- 4.303 / sqrt(3)."""
    case = advise(STRONG, [problem(row("a", 2, spread=1))])[1].cases[0]
    assert (case.difference, case.seeds) == (2, 3)
    assert (case.low, case.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-5)
    assert names(problem(row("a", 2, seeds=2))) == ["uniform"], "two seeds are no evidence"


def test_strict_evidence_replaces_older() -> None:
    """Four claims: the interval of 1, 2, 3 has Student's quantile of 1 - 0.05 / 8 with 2 freedoms, 8.860, by hand."""
    old, new = problem(row("a", -5), row("b", 9)), problem(row("a", 2, spread=1), claims=4, study="new")
    elsewhere = problem(row("a", 7), data="digits")
    found = {choice.method: choice for choice in advise(STRONG, [old, elsewhere, new])}
    (case,) = found["a"].cases
    assert case.problem.study == "new" and not found["a"].older and found["b"].older
    # t of 2 freedoms: x = t / sqrt(t^2 + 2) = 1 - 0.05 / 4, so t = x sqrt(2 / (1 - x^2))
    x = 1 - 0.05 / 4
    half = x * (2 / (1 - x * x)) ** 0.5 / 3**0.5
    assert (case.low, case.high) == pytest.approx((2 - half, 2 + half), abs=1e-6)
    shown = [choice.method for choice in advise(STRONG, [problem(row("b", 9)), problem(row("a", 2), claims=4)])]
    assert shown.index("a") < shown.index("b"), "also if the older difference is larger"
    record = as_record(STRONG, [found["a"], found["b"]])["choices"]
    assert [case["protocol"] for choice in record for case in choice["cases"]] == ["strict", "older"]


def test_strict_evidence_replaces_older_of_the_same_method_with_other_numbers() -> None:
    """`whitened` was recommended for its older gain, where a strict study had found none with another share."""
    old = problem(row("a", 9), row("b + a(0.5)", 9), row("c('x')", 9))
    new = problem(row("a(share=0.05)", 0.1, spread=9), row("b + a(rho=0.5, k=3)", 1), row("c('y')", 1), claims=4)
    assert {"a", "b + a(0.5)"}.isdisjoint(names(old, new)) and {"c('x')", "a(share=0.05)"} <= {*names(old, new)}


def test_methods_are_compared_where_both_were_measured() -> None:
    """`b` was measured where gains are small, too; where both were measured, it is better."""
    large = problem(row("a", 9), row("b", 10))
    larger = problem(row("a", 11), row("b", 12), model="n")
    small = problem(row("b", 1), data="digits")
    assert names(large, larger, small) == ["b", "a", "uniform"]


def test_methods_of_two_studies_are_compared_by_their_gains() -> None:
    """`a` is the best of its own study, `b` is not in that; both were measured with the same data and clients."""
    first = [problem(row("a", 5), row("c", 4), data=data) for data in ("cifar10", "digits")]
    second = [problem(row("b", 9), row("d", 10), row("e", 11), study="t", data=data) for data in ("cifar10", "digits")]
    assert names(*first, *second) == ["e", "d", "b", "a", "c", "uniform"]


def test_more_cases_do_not_make_a_worse_method_better() -> None:
    """`a` has strong evidence, `b` moderate; `b` is better in both of its problems."""
    two = [problem(row("a", 3), row("b", 5)), problem(row("a", 2), row("b", 3), data="digits")]
    found = advise(STRONG, [*two, problem(row("a", 1), model="n")])
    assert [(choice.method, choice.confidence) for choice in found[:2]] == [("b", "moderate"), ("a", "strong")]


def test_a_single_case_comes_after_better_evidence() -> None:
    two = [problem(row("a", 3)), problem(row("a", 2), row("b", 30), data="digits")]
    found = advise(STRONG, two)
    assert [(choice.method, choice.confidence) for choice in found[:2]] == [("a", "moderate"), ("b", "weak")]


def test_three_cases_on_two_data_sets_are_strong() -> None:
    three = [problem(row("a", 2)), problem(row("a", 3), model="n"), problem(row("a", 1), data="digits")]
    assert advise(STRONG, three)[0].confidence == "strong"
    one_data_set = [problem(row("a", 2), model=model) for model in "mno"]
    assert advise(STRONG, one_data_set)[0].confidence == "moderate"
    assert advise(STRONG, three[:1])[0].confidence == "weak"


def test_studies_of_one_problem_count_once() -> None:
    """Two studies with one data set, model and partition are one case: the one with more seeds."""
    found = advise(STRONG, [problem(row("a", 2)), problem(row("a", 1, seeds=5), study="t"), problem(study="u")])
    assert [(case.problem.study, case.seeds) for case in found[0].cases] == [("t", 5)]


def test_only_near_problems_of_the_same_kind_and_family_count() -> None:
    both = problem(row("a", 2)), problem(row("b", 2), label=0.0)
    assert names(*both) == ["a", "uniform"] and names(*both, skew=EVEN) == ["b", "uniform"]
    far = advise(DataSkew(0.3, 0.9, 0.5, 10), both)
    assert [(choice.method, choice.confidence) for choice in far] == [("uniform", "none")]
    assert names(*both, kind="text") == names(*both, family="dense") == ["uniform"]


def test_the_distance_is_that_of_the_kind_that_differs_most() -> None:
    skew = {"label": 0.7, "quantity": 0.4, "feature": 0.0}
    assert distance(DataSkew(None, 0.4, None, 10), skew) == 0
    assert distance(DataSkew(0.6, 0.0, 0.1, 10), skew) == pytest.approx(0.2), "0.1, 0.5 * 0.4 and 1.5 * 0.1"
    assert distance(DataSkew(0.7, 0.4, 0.9, 10), {"label": 0.7, "quantity": 0.4}) == 0, "features: not measured there"


def test_limits() -> None:
    one = problem(row("state", 6, stateless=False), row("sam", 5, gradients=2.0), row("scaffold", 4, traffic=2.0))
    assert names(one) == ["state", "sam", "scaffold", "uniform"]
    assert names(one, stateless=True) == ["sam", "scaffold", "uniform"]
    assert names(one, gradients=1.5) == ["state", "scaffold", "uniform"]
    assert names(one, traffic=1) == ["state", "sam", "uniform"]


def test_families() -> None:
    assert family(nn.Linear(2, 2)) == "dense"
    assert family(nn.Sequential(nn.Conv1d(1, 1, 3), nn.Linear(2, 2))) == "convolutional"
    assert family(nn.LSTM(2, 2)) == "recurrent"
    assert family(nn.Sequential(nn.Conv2d(3, 8, 4), nn.TransformerEncoderLayer(8, 2))) == "attention"


def test_the_record() -> None:
    found = as_record(STRONG, advise(STRONG, [problem(row("a", 2))]))
    assert found["skew"] == {"label": 0.7, "quantity": 0.4, "feature": 0.0, "clients": 100}
    case = found["choices"][0]["cases"][0]
    assert (case["difference"], case["rounds"], case["seeds"]) == (2, 30, 3)
    assert (found["baseline"], found["choices"][1]["cases"]) == ("uniform", [])


def test_what_comes_with_the_package() -> None:
    problems = evidence()
    assert problems and all("uniform" in [x.method for x in one.rows] for one in problems)
    assert all(isinstance(seed, int) for row in problems[0].rows for seed in row.accuracy)
    assert replace(problems[0], rows=()).difference("uniform", "uniform") is None


def test_never_before_a_method_that_was_clearly_better_in_all_they_share() -> None:
    """The recommendation, from the evidence of this version, for every problem in it."""
    for one in evidence():
        skew = DataSkew(one.skew["label"], one.skew["quantity"], one.skew.get("feature"), 100)
        found = advise(skew, kind=one.kind, family=one.family)
        better = [choice for choice in found if choice.confidence != "weak" and choice.wins and not choice.losses]
        for choice in better[1:]:
            gaps = [gap for x in evidence() if (gap := x.difference(choice.method, better[0].method)) is not None]
            assert not gaps or not all(gap.low is not None and gap.low > 0 for gap in gaps), (one, choice.method)
