"""What reaching a target costs, against numbers by hand."""

import json
from math import nan
from typing import Any

import pytest

from undrift.runs.folder.judge import PERSONAL, run_summary
from undrift.runs.settings.targets import Target, read_targets
from undrift.studies.cost_to_target import amount_text, cost_cells, cost_note, costs, curve, reached_text
from undrift.studies.statistics import cells, summarise, to_markdown, views


def rows(*accuracies: float | None, gradients: int = 10, up: int = 100, seconds: float = 2.0) -> list[dict[str, Any]]:
    """Rounds with the given accuracies; None is a round without evaluation."""
    spent = {"gradients": gradients, "bytes_up": up, "bytes_down": 100, "seconds": seconds, "evaluate_seconds": 9.0}
    known: list[dict[str, Any]] = [{} if x is None else {"accuracy": x} for x in accuracies]
    return [{"round": n, **spent, **row} for n, row in enumerate(known, 1)]


def run(its: list[dict[str, Any]], *targets: Any) -> dict[str, Any]:
    """A result, as of a run's folder."""
    summary = run_summary(its)
    spent = {name: summary[name] for name in ("rounds", "gradients", "seconds")}
    spent["bytes"] = summary["bytes_up"] + summary["bytes_down"]
    return {**summary, "targets": read_targets(list(targets)), "curve": curve(its), "spent": spent}


BASE = {0: run(rows(0.2, 0.4, 0.3, 0.6)), 1: run(rows(0.1, 0.5, 0.2, 0.2))}
TWICE: dict[str, Any] = {"gradients": 20, "up": 200, "seconds": 3.0}  # two gradients a step and twice the upload
MINE = {0: run(rows(0.5, 0.6, 0.6, 0.7, **TWICE)), 1: run(rows(0.3, 0.4, 0.4, 0.4, **TWICE))}


def test_a_curve_counts_rounds_without_an_evaluation() -> None:
    points = curve(rows(None, 0.4, nan, 0.6))
    assert [(point["accuracy"], point["rounds"], point["gradients"]) for point in points] == [
        (0.4, 2, 20),
        (0.6, 4, 40),
    ]
    assert points[0] == {"accuracy": 0.4, "rounds": 2, "gradients": 20, "bytes": 400, "seconds": 4.0}
    assert curve(rows(0.5), PERSONAL) == [] == curve([])


def test_a_number() -> None:
    """0.4: the baseline needs 2 and 2 rounds, ours 1 and 2; a round of ours costs 20 gradients, 300 bytes, 3 s."""
    cost, whole = costs(MINE, BASE, [Target(0.4)])
    assert (cost["target"], cost["accuracy"], cost["reached"], cost["seeds"], cost["pairs"]) == (0.4, 0.4, 2, 2, 2)
    assert (cost["rounds"], cost["gradients"], cost["bytes"], cost["seconds"]) == (1.5, 30, 450, 4.5)
    assert cost["ratio"] == {"rounds": 3 / 4, "gradients": 60 / 40, "bytes": 900 / 800, "seconds": 9 / 8}
    assert cost["speedup"] == {name: pytest.approx(1 / ratio) for name, ratio in cost["ratio"].items()}
    assert cost["share"] == {"rounds": 3 / 8, "gradients": 60 / 80, "bytes": 900 / 1600, "seconds": 9 / 16}
    assert whole["target"] is None and whole["accuracy"] is None and (whole["rounds"], whole["reached"]) == (4, 2)
    assert whole["ratio"] == whole["share"] == {"rounds": 1, "gradients": 2, "bytes": 1.5, "seconds": 1.5}


def test_the_baselines_best_is_that_of_the_seed() -> None:
    """Bests 0.6 (round 4) and 0.5 (round 2): ours needs 2 rounds with seed 0 and never gets there with seed 1."""
    theirs, mine = (costs(runs, BASE, [Target(1.0, True)])[0] for runs in (BASE, MINE))
    assert (theirs["target"], theirs["accuracy"], theirs["rounds"], theirs["reached"]) == ("baseline", 0.55, 3, 2)
    assert set(theirs["ratio"].values()) == {1.0} and theirs["share"]["bytes"] == 3 / 4
    assert (mine["accuracy"], mine["rounds"], mine["reached"], mine["pairs"]) == (0.55, 2, 1, 1)
    assert mine["ratio"] == {"rounds": 2 / 4, "gradients": 40 / 40, "bytes": 600 / 800, "seconds": 6 / 8}
    share = costs(MINE, BASE, [Target(0.75, True)])[0]  # 0.45 and 0.375: after 1 and 2 rounds
    assert (share["rounds"], share["reached"]) == (1.5, 2) and share["accuracy"] == pytest.approx(0.4125)
    assert share["ratio"]["rounds"] == 3 / (4 + 2) and share["speedup"]["rounds"] == 2


def test_ratios_are_of_the_seeds_in_which_both_reached_it() -> None:
    cost = costs(MINE, BASE, [Target(0.6)])[0]
    assert (cost["reached"], cost["pairs"], cost["ratio"]["rounds"]) == (1, 1, 2 / 4)
    easy = costs(BASE, MINE, [Target(0.5)])[0]  # 4 and 2 rounds, but the other one reaches it with seed 0 only
    assert (easy["rounds"], easy["reached"], easy["pairs"], easy["ratio"]["rounds"]) == (3, 2, 1, 4.0)
    assert easy["share"]["rounds"] == 6 / 8


def test_runs_that_diverged_or_were_not_evaluated() -> None:
    """No number is made up: what is not known is None, and JSON has no NaN."""
    lost = {0: run(rows(nan, nan)), 1: run(rows(None, None)), 2: run(rows(0.7, nan))}
    base = {0: run(rows(nan, nan)), 2: run(rows(0.3, 0.6))}
    number, relative, whole = costs(lost, base, [Target(0.5), Target(1.0, True)])
    assert (number["seeds"], number["reached"], number["rounds"], number["pairs"]) == (3, 1, 1, 1)
    assert (relative["seeds"], relative["reached"], relative["accuracy"]) == (1, 1, 0.6), "one seed has a best"
    assert (whole["reached"], whole["pairs"], whole["ratio"]["gradients"]) == (3, 2, 1.0)
    none = costs(lost, {}, [Target(1.0, True)])
    assert none[0]["seeds"] == none[0]["reached"] == 0 and none[0]["rounds"] is None and reached_text(none[0]) == ""
    assert set(none[1]["ratio"].values()) == {None} and none[1]["rounds"] == 2
    table = summarise({"base": base, "lost": lost | {3: {**run(rows(0.5)), "accuracy": nan}}}, "base")
    assert "NaN" not in json.dumps(table) and table[1]["last"] == 0.7
    free = {0: run(rows(0.5, gradients=0))}
    assert costs(free, free, [])[0]["ratio"]["gradients"] is None, "nothing to divide by"


TARGETS = (0.4, "baseline", "0.75 * baseline")
RUNS = {
    label: {seed: {**one, "targets": read_targets(list(TARGETS))} for seed, one in runs.items()}
    for label, runs in {"fedavg": BASE, "mine": MINE}.items()
}


def test_the_columns_of_several_targets() -> None:
    table = summarise(RUNS, "fedavg")
    assert (table[1]["rounds_to_target"], table[1]["reached"]) == (1.5, 2), "those of the first"
    headings, texts = cells(table)
    start = headings.index("rounds to 40 %")
    names = ["rounds to 40 %", "rounds to fedavg's best", "rounds to 0.75 * fedavg's best"]
    assert headings[start : start + 3] == names
    assert [line[start : start + 3] for line in texts] == [
        ["2.0 (2/2)", "3.0 (2/2)", "3.0 (2/2)"],
        ["1.5 (2/2)", "2.0 (1/2)", "1.5 (2/2)"],
    ]
    plain = summarise({"fedavg": {0: run(rows(0.5), 0.4)}, "b": {0: run(rows(0.5), 0.4)}}, "fedavg")
    assert "rounds to target" in cells(plain)[0], "one number keeps its heading"
    other = summarise({"fedavg": {0: run(rows(0.5), "baseline")}}, "fedavg")
    assert "rounds to fedavg's best" in cells(other)[0] and "rounds to target" not in cells(other)[0]


def test_the_table_of_costs() -> None:
    table = summarise(RUNS, "fedavg")
    headings, lines = cost_cells(table)
    assert headings == [
        "target",
        "method",
        "rounds",
        "speedup",
        "gradients",
        "traffic",
        "time",
        "traffic/run",
        "MB",
        "s",
    ]
    assert [line[:2] for line in lines] == [
        [target, method]
        for target in ("40 %", "55.00 % (baseline)", "41.25 % (0.75 * baseline)", "whole run")
        for method in ("fedavg", "mine")
    ]
    assert lines[1][2:] == ["1.5 (2/2)", "1.33x", "1.50x", "1.12x", "1.12x", "0.56x", "0.00045", "4.5"]
    assert lines[7][2:] == ["4.0 (2/2)", "1.00x", "2.00x", "1.50x", "1.50x", "1.50x", "0.0012", "12"]
    parts = cost_cells([{"setting": name, **row} for name in ("easy", "hard") for row in table])
    assert parts[0][0] == "setting" and parts[1][8] == ["hard", *lines[0]] and len(parts[1]) == 16
    both = to_markdown(table, ("accuracy", "cost"))
    assert both.startswith(to_markdown(table)) and both.endswith(cost_note("fedavg") + "\n")
    assert "| --- | --- | ---: | ---: |" in both and "| 40 % | mine | 1.5 (2/2) | 1.33x |" in both
    assert [view.keys for view in views(table, ("cost", "accuracy"))] == [2, 1] and list(views([], ("cost",))) == []
    never = summarise({"fedavg": {0: run(rows(0.5), 0.9)}}, "fedavg")
    assert cost_cells(never)[1][0] == ["90 %", "fedavg", "- (0/1)", *["-"] * 7]


@pytest.mark.parametrize(("rounds", "up", "share"), [(465, 100, 0.58), (205, 300, 0.51), (190, 100, 0.24)])
def test_the_share_is_the_unit_of_fedffts_table_4(rounds: int, up: int, share: float) -> None:
    """FedSAM, FedSMOO (twice the traffic) and FedFFT-D on CIFAR-10, alpha 0.6, in units of FedAvg's 800 rounds."""
    fedavg = {0: run(rows(*[0.1] * 799, 0.8))}
    other = {0: run(rows(*[0.1] * (rounds - 1), *[0.8] * (801 - rounds), up=up))}
    cost = costs(other, fedavg, [Target(1.0, True)])[0]
    assert cost["rounds"] == rounds and cost["share"]["bytes"] == pytest.approx(share, abs=0.005)


def test_notes_say_which_accuracy_counts() -> None:
    table = summarise({"fedavg": {0: run(rows(0.5), 0.4) | {"judged_by": PERSONAL}}}, "fedavg")
    (alone,), both = views(table, ("cost",)), list(views(table, ("accuracy", "cost")))
    assert "Judged by personal" in alone.note and alone.note.startswith(cost_note("fedavg"))
    assert "Judged by personal" in both[0].note and both[1].note == cost_note("fedavg")
    del table[0]["costs"]
    assert "rounds to target" not in cells(table)[0], "a table of an earlier version"


def test_amounts() -> None:
    assert [amount_text(x) for x in (0.001234, 9.876, 99.96, 100.4, 12345.6)] == [
        "0.00123",
        "9.88",
        "100",
        "100",
        "12346",
    ]
