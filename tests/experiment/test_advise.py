"""Recommendations: from the nearest measured cases, within limits, and as sure as these allow."""

from undrift.data.skew import DataSkew
from undrift.experiment.advise import Case, advise, as_record, distance, evidence, once

STRONG, EVEN = DataSkew(0.7, 0.4, 0.0, 100), DataSkew(0.0, 0.0, 0.0, 100)


def case(method: str, low: float, high: float, data: str = "cifar10", label: float = 0.7, **changed: object) -> Case:
    skew = {"label": label, "quantity": 0.4 if label else 0.0, "feature": 0.0}
    values = {
        **{"study": "s", "data": data, "model": "m", "partition": "p", "skew": skew, "label": method, "method": method},
        **{
            "baseline": "fedavg",
            "stateless": True,
            "gradients": 1.0,
            "traffic": 1.0,
            "seeds": 5,
            "difference": (low + high) / 2,
        },
        **{"low": low, "high": high, **changed},
    }
    return Case(**values)  # type: ignore[arg-type]


def test_the_best_that_never_lost_comes_first() -> None:
    cases = [case("a", 1, 3), case("a", 2, 4, "digits"), case("b", 8, 9), case("b", -3, -1, "digits"), case("c", -1, 3)]
    found = advise(STRONG, cases)
    assert [choice.method for choice in found] == ["a", "fedavg", "b", "c"], "b lost once, c never won"
    assert (found[0].wins, found[0].losses, found[0].difference, found[0].confidence) == (2, 0, 2.5, "moderate")
    assert found[2].losses == 1 and found[3].confidence == "weak"


def test_compositions_are_compared_within_a_study() -> None:
    """`b` was measured where gains are large; where both were measured, `a` is better."""
    cases = [case("a", 9, 11, study="s"), case("b", 8, 10, study="s"), case("a", 1, 3, "digits", study="t")]
    assert [choice.method for choice in advise(STRONG, cases)] == ["a", "b", "fedavg"]
    more = [*cases, case("a", 1, 3, study="u", model="n"), case("c", 20, 30, study="v")]
    found = advise(STRONG, more)
    assert [(choice.method, choice.confidence) for choice in found[:2]] == [("a", "strong"), ("c", "weak")]


def test_three_cases_on_two_data_sets_are_strong() -> None:
    three = [case("a", 1, 3), case("a", 2, 4, model="n"), case("a", 1, 2, "digits")]
    assert advise(STRONG, three)[0].confidence == "strong"
    one_data_set = [case("a", 1, 3, model=model) for model in "mno"]
    assert advise(STRONG, one_data_set)[0].confidence == "moderate"
    assert advise(STRONG, three[:1])[0].confidence == "weak"


def test_studies_of_one_problem_count_once() -> None:
    """Two studies with one data set, model and partition are one case: the one with more seeds."""
    more = case("a", 1, 2, study="t", seeds=9)
    assert once([case("a", 1, 3), more, case("a", 1, 3, study="u")]) == [more]
    found = advise(STRONG, [case("a", 1, 3), more, case("a", 1, 3, "digits")])[0]
    assert (found.wins, found.confidence, found.cases[0].study) == (2, "moderate", "t")


def test_every_study_counts_for_the_order() -> None:
    """`a` has more seeds elsewhere; in the study that has both, it is behind `b`."""
    cases = [case("a", 1, 3), case("b", 3, 5), case("a", 7, 9, study="t", seeds=9), case("b", 2, 4, "digits")]
    found = advise(STRONG, [*cases, case("a", 1, 3, "digits")])
    assert [(choice.method, choice.confidence) for choice in found] == [
        ("b", "moderate"),
        ("a", "moderate"),
        ("fedavg", "weak"),
    ]
    assert [(case.study, case.data) for case in found[1].cases] == [("t", "cifar10"), ("s", "digits")]


def test_only_near_cases_count() -> None:
    cases = [case("a", 1, 3), case("b", 1, 3, label=0.0)]
    assert [choice.method for choice in advise(STRONG, cases)] == ["a", "fedavg"]
    assert [choice.method for choice in advise(EVEN, cases)] == ["b", "fedavg"]
    far = advise(DataSkew(0.3, 0.9, 0.5, 10), cases)
    assert [(choice.method, choice.confidence) for choice in far] == [("fedavg", "none")]
    assert distance(DataSkew(None, 0.4, None, 10), cases[0].skew) == 0


def test_limits() -> None:
    cases = [
        case("state", 5, 6, stateless=False),
        case("sam", 4, 5, gradients=2.0),
        case("scaffold", 3, 4, traffic=2.0),
    ]
    assert [c.method for c in advise(STRONG, cases)] == ["state", "sam", "scaffold", "fedavg"]  # all in one study
    assert [c.method for c in advise(STRONG, cases, stateless=True)] == ["sam", "scaffold", "fedavg"]
    assert [c.method for c in advise(STRONG, cases, gradients=1.5)] == ["state", "scaffold", "fedavg"]
    assert [c.method for c in advise(STRONG, cases, traffic=1)] == ["state", "sam", "fedavg"]


def test_the_record() -> None:
    found = as_record(STRONG, advise(STRONG, [case("a", 1, 3)]))
    assert found["skew"] == {"label": 0.7, "quantity": 0.4, "feature": 0.0, "clients": 100}
    assert found["choices"][0]["cases"][0]["low"] == 1 and found["choices"][1]["cases"] == []


def test_what_comes_with_the_package() -> None:
    cases = evidence()
    assert cases and all(case.low <= case.difference <= case.high and case.seeds >= 2 for case in cases)
    assert {"label", "quantity"} <= set(cases[0].skew)
