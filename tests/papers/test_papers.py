"""The experiments of the papers: files, scales, costs, our numbers beside the published ones."""

import json
import re
import sys
from itertools import chain
from math import isnan, nan
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

import undrift
from make_papers import page
from undrift.cli import app
from undrift.papers import (
    Item,
    Paper,
    ResultLine,
    Steps,
    compare_with_published,
    comparison,
    estimate,
    paper,
    papers,
    perform,
    rehearse,
    result_cells,
)
from undrift.papers.catalogue import split_measure
from undrift.papers.estimate import gradients
from undrift.papers.runner import Scale
from undrift.runs import Config, ConfigError
from undrift.runs.settings.named_arguments import parts
from undrift.runs.settings.schema import validate

ROOT = Path(__file__).parents[2]
ITEMS = [(name, key) for name in papers() for key in paper(name).items]
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")
NUMBERS = {
    "fedfft": [*(f"Table {n}" for n in range(1, 14)), *(f"Figure {n}" for n in range(1, 10))],
    "fedfsa": ["Table 1", "Table 2", *(f"Figure {n}" for n in ("1", "2", "3a", "3b", "4", "5"))],
    "fedscam": ["Table 1", "Table 2", *(f"Figure {n}" for n in range(1, 28)), "Section 5.2"],
    "fedwmsam": [*(f"Table {n}" for n in range(1, 7)), *(f"Figure {n}" for n in range(1, 7))],
    "specgrad": [
        *(f"Table {n}" for n in ROMAN),
        *(f"Figure {n}" for n in range(1, 9)),
        "Table 1 of the supplement",
        "Figure 1 of the supplement",
    ],
}
"""Paper -> the numbers of all its tables and figures."""

SMALL_MODELS = {"small-cnn", "cnn", "resnet8", "lstm", "variational-cnn"}
WIDE = CliRunner(env={"COLUMNS": "160"})


@pytest.fixture
def tiny() -> Paper:
    """A paper with one table, which trains in seconds."""
    base = {"data": "fashion-mnist", "clients": 20, "cohort": 2, "rounds": 900, "model": "small-cnn"}
    base["target"] = [0.05, "baseline"]
    rows = [{"method": "fedavg"}, {"method": "fedsam"}]
    parts = {"skewed": {"partition": "dirichlet:0.1"}, "even": {"partition": "iid", "clients": 30}}
    item = {
        "number": "Table IV",
        "about": "two methods",
        "comparison": {"seeds": [0], "methods": rows, "settings": parts},
        "small": {"settings": ["skewed"], "seeds": [0, 1], "parts": {"skewed": {"clients": 10}}},
        "figures": [{"kind": "accuracy"}],
    }
    values = {
        "name": "tiny",
        "title": "Tiny",
        "base": base,
        "small": {"rounds": 2, "local": {"epochs": 1}},
        "without": {"Figure 1": "it is a drawing"},
        "items": {"table4": item, "figure2": {"number": "Figure 2", "about": "curves", "runs": "table4"}},
        "published": {"table4": {"skewed": {"fedavg": 60.0, "fedsam": [64.0, 1.0]}}},
    }
    return validate(Paper, values, "tiny")


def test_an_item_is_named_by_its_file_or_its_number(tiny: Paper) -> None:
    assert tiny.item("table4") is tiny.item("Table IV") is tiny.items["table4"]
    with pytest.raises(ConfigError, match="nothing to run: it is a drawing"):
        tiny.item("figure 1")
    with pytest.raises(ConfigError, match="did you mean 'table4'"):
        tiny.item("table3")
    with pytest.raises(ConfigError, match="no paper is named 'fedft'; did you mean 'fedfft'"):
        paper("fedft")


def test_small_scale_is_what_the_file_says(tiny: Paper) -> None:
    whole = comparison(tiny, tiny.items["table4"])
    assert {trial.config.rounds for trial in whole.trials()} == {900}
    assert {trial.setting for trial in whole.trials()} == {"skewed", "even"}
    small = comparison(tiny, tiny.items["figure2"], "small")
    assert small.seeds == (0, 1)
    assert {(t.setting, t.config.rounds, t.config.clients) for t in small.trials()} == {("skewed", 2, 10)}


def test_an_item_has_runs_of_its_own_or_those_of_another() -> None:
    with pytest.raises(ConfigError, match="either \\[comparison\\] or runs"):
        validate(Item, {"number": "Table 1", "about": "nothing"}, "table1.toml")


def test_a_client_that_is_the_test_set_is_not_counted() -> None:
    # Office-Home: 14,029 examples of 4 domains, one of them the test set: 3 clients with 3,507.25 on average
    config = Config(data="office-home", partition="natural,test=0", rounds=2, local={"batch_size": 50, "epochs": 1})  # type: ignore[arg-type]
    assert gradients(config) == 2 * 3 * 71


@pytest.mark.quick
def test_costs_are_counted(tiny: Paper, tmp_path: Path) -> None:
    trials = comparison(tiny, tiny.items["table4"], "small").trials()
    # 60,000 examples, 10 clients: 6,000 each, 120 batches of 50; 2 rounds of 2 clients; FedSAM takes two gradients
    assert [gradients(trial.config) for trial in trials[:2]] == [2 * 2 * 120, 2 * 2 * 120 * 2]
    steps = Steps(tmp_path / "steps.json")
    costs = estimate(comparison(tiny, tiny.items["table4"], "small"), steps)
    assert (costs.runs, costs.gradients, costs.data) == (4, 2 * 480 + 2 * 960, ("fashion-mnist",))
    assert costs.hours is not None
    assert 0 < costs.hours < 1
    assert json.loads((tmp_path / "steps.json").read_text()).keys() == steps.known.keys()


def test_ours_beside_published(tiny: Paper) -> None:
    gap = {"last_difference": 0.02, "last_low": -0.01, "last_high": 0.05}
    rows = [
        {"setting": "skewed", "label": "fedavg", "seeds": [0, 1, 2], "last": 0.61, "last_std": 0.01},
        {"setting": "skewed", "label": "fedsam", "seeds": [0, 1, 2], "last": 0.63, "last_std": 0.02, **gap},
    ]
    first, second = compare_with_published(tiny, tiny.items["table4"], {"rows": rows, "baseline": "fedavg"})
    assert first.difference == pytest.approx(1.0)
    assert first.gap is None
    assert (second.published, second.published_std) == (64.0, 1.0)
    assert (second.gap, second.published_gap) == (pytest.approx(2.0), pytest.approx(4.0))  # type: ignore[comparison-overlap]
    # Student's quantile for 2 degrees of freedom is 4.3027; 4.3027 * 2 / sqrt(3) = 4.968
    assert second.interval == (pytest.approx(-1 - 4.968, abs=1e-3), pytest.approx(-1 + 4.968, abs=1e-3))  # type: ignore[comparison-overlap]
    headings, lines = result_cells([first, second], "fedavg")
    assert headings == ["setting", "method", "ours", "published", "difference", "ours vs fedavg", "published vs"]
    assert lines[1][2:] == ["63.00 ± 2.00", "64.00 ± 1.00", "-1.00 [-5.97, +3.97]", "+2.00 [-1.00, +5.00]", "+4.00"]


def cost(target: float | str | None, rounds: float | None, share: float | None, reached: int) -> dict[str, Any]:
    """What a row of a comparison says about a target; a round takes two seconds."""
    seconds = None if rounds is None else 2 * rounds
    return {"target": target, "rounds": rounds, "seconds": seconds, "share": {"bytes": share}, "reached": reached}


def costs_beside(tiny: Paper, fedavg: dict[str, float], fedsam: dict[str, float]) -> list[ResultLine]:
    """Measured costs of two rows beside published ones."""
    published = {"table4": {"skewed": {"fedavg": fedavg, "fedsam": fedsam}}}
    whole = validate(Paper, {**tiny.model_dump(), "published": published}, "tiny")
    spent = {
        "fedavg": [
            cost(0.5, 50.0, 0.5, 2),
            cost(0.6, 90.0, 0.9, 1),
            cost("baseline", 100.0, 1.0, 2),
            cost(None, 100.0, 1.0, 2),
        ],
        "fedsam": [
            cost(0.5, 20.0, 0.2, 2),
            cost(0.6, None, None, 0),
            cost("baseline", 80.0, 0.8, 2),
            cost(None, 100.0, 1.0, 2),
        ],
    }
    shared = {"setting": "skewed", "seeds": [0, 1], "last": 0.6, "seconds_per_round": 2.0}
    rows = [{**shared, "label": label, "costs": costs} for label, costs in spent.items()]
    return compare_with_published(whole, whole.items["table4"], {"rows": rows, "baseline": "fedavg"})


def test_costs_of_several_targets(tiny: Paper) -> None:
    theirs = {"rounds@0.50": 30, "rounds@0.6": 70, "rounds@0.9": 99}  # the comparison has no target 0.9
    lines = costs_beside(tiny, {"rounds@0.5": 40, "seconds": 3.0}, theirs)  # type: ignore[arg-type]
    assert [(line.label, line.measure, line.ours, line.published, line.seeds) for line in lines] == [
        ("fedavg", "rounds to 50 %", 50.0, 40, 2),
        ("fedavg", "rounds to 60 %", 90.0, None, 1),  # not reached in the paper
        ("fedavg", "rounds to the baseline's best", 100.0, None, 2),
        ("fedavg", "seconds per round", 2.0, 3.0, 2),
        ("fedsam", "rounds to 50 %", 20.0, 30, 2),
        ("fedsam", "rounds to 60 %", None, 70, 0),  # not reached here
        ("fedsam", "rounds to the baseline's best", 80.0, None, 2),
        ("fedsam", "seconds per round", 2.0, None, 2),
    ]
    assert all(line.interval is None for line in lines)
    headings, texted = result_cells(lines, "fedavg")
    assert headings == ["setting", "method", "measure", "ours", "published", "difference"]
    assert texted[0] == ["skewed", "fedavg", "rounds to 50 %", "50.00", "40.00", "+10.00"]


def test_costs_of_the_first_target(tiny: Paper) -> None:
    theirs = {"accuracy": 61.0, "rounds": 30, "cost": 0.5, "total_seconds": 60}
    lines = costs_beside(tiny, {"rounds": 100, "cost": 1.0}, theirs)
    found = {line.measure: (line.ours, line.published) for line in lines if line.label == "fedsam"}
    assert found == {
        "accuracy %": (60.0, 61.0),
        "rounds to target": (20.0, 30),
        "traffic to target, the baseline's run = 1": (0.2, 0.5),
        "seconds to target": (40.0, 60),
    }


def test_measures_and_their_targets() -> None:
    assert split_measure("total_seconds@0.95 * baseline") == ("total_seconds", "0.95 * baseline")
    for text in ("round", "seconds@0.7", "accuracy@0.7", "rounds@", "rounds@70"):
        with pytest.raises(ValueError, match=r"is not a measure|target: must be"):
            split_measure(text)
    values = {"name": "x", "title": "X", "published": {"table1": {"all": {"fedavg": {"turns": 3}}}}}
    with pytest.raises(ConfigError, match=r"'turns' is not a measure; write accuracy, .*, as in rounds@0\.7"):
        validate(Paper, values, "x/published.toml")


def test_one_seed_has_no_interval() -> None:
    assert ResultLine("", "fedavg", "accuracy %", 60.0, None, 1, 61.0).interval is None


@pytest.mark.parametrize("name", papers())
def test_every_number_of_a_paper_is_an_item_or_has_a_reason(name: str) -> None:
    whole = paper(name)
    items = [item.number for item in whole.items.values()]
    assert sorted([*items, *whole.without]) == sorted(NUMBERS[name])
    assert all(whole.without.values())


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize(("name", "key"), ITEMS)
def test_an_item_has_its_number_and_what_its_figures_show(name: str, key: str) -> None:
    whole, item = paper(name), paper(name).items[key]
    kind, number = item.number.split()[:2]
    digits = str(ROMAN.index(number) + 1) if number in ROMAN else number
    assert key.removeprefix("supplement-") == f"{kind.lower()}{digits}"
    both = [comparison(whole, item, scale).trials() for scale in get_args(Scale)]
    labels, settings = {trial.label for trial in both[0]}, {trial.setting for trial in both[0]}
    for drawing in item.figures:
        assert {*drawing.methods} <= labels
        assert {*drawing.settings} <= settings
        assert all(any(drawing.shows(trial.setting, trial.label) for trial in trials) for trials in both)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("name", "key"), [(name, key) for name, key in ITEMS if not paper(name).items[key].runs])
def test_the_small_scale_needs_no_network_and_few_rounds(name: str, key: str) -> None:
    built = comparison(paper(name), paper(name).items[key], "small")
    configs = [trial.config for trial in built.trials()]
    assert {parts(config.data)[0] for config in configs} <= {"cifar10", "fashion-mnist", "shakespeare"}
    assert {parts(str(config.model))[0] for config in configs} <= SMALL_MODELS
    assert max(config.rounds for config in configs) <= 40
    assert len(built.seeds) >= 2 or max(config.rounds for config in configs) == 1  # a partition is drawn once


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("name", papers())
def test_published_numbers_have_their_runs(name: str) -> None:
    whole = paper(name)
    for key, published_parts in whole.published.items():
        trials = comparison(whole, whole.items[key]).trials()
        known = {(trial.setting or "all", trial.label) for trial in trials}
        published = {(setting, label) for setting, rows in published_parts.items() for label in rows}
        assert published <= known, f"{name}/published.toml, {key}: no run is {sorted(published - known)}"


@pytest.mark.quick
def test_the_page_lists_every_item() -> None:
    assert (ROOT / "docs" / "evidence" / "papers.md").read_text() == page(), "run make papers"


@pytest.mark.quick
def test_an_experiment_runs_resumes_and_writes_its_numbers(tiny: Paper, tmp_path: Path) -> None:
    tiny = validate(Paper, {**tiny.model_dump(), "small": {"rounds": 2, "local": {"steps": 5}}}, "tiny")
    item = tiny.items["table4"]
    lines, figures, table = perform(tiny, item, tmp_path / "runs", "small")
    assert [(line.setting, line.label, line.seeds) for line in lines] == [
        ("skewed", "fedavg", 2),
        ("skewed", "fedsam", 2),
    ]
    assert {path.suffix for path in figures} == {".png", ".pdf"}
    assert not table["failures"]
    assert "| skewed | fedsam |" in (tmp_path / "runs" / "tiny-table4.md").read_text()
    published = {"skewed": {"fedavg": {"rounds@0.05": 3, "cost@baseline": 1.0, "seconds": 9.0}}}
    whole = validate(Paper, {**tiny.model_dump(), "published": {"table4": published}}, "tiny")
    spent = {
        line.measure: line
        for line in compare_with_published(whole, whole.items["table4"], table)
        if line.label == "fedavg"
    }
    assert (spent["rounds to 5 %"].ours, spent["rounds to 5 %"].published, spent["rounds to 5 %"].seeds) == (1.0, 3, 2)
    assert 0.5 <= (spent["traffic to the baseline's best, the baseline's run = 1"].ours or 0) <= 1
    assert (spent["seconds per round"].ours or 0) > 0
    again, _, _ = perform(tiny, tiny.items["figure2"], tmp_path / "runs", "small")
    assert [line.ours for line in again] == [line.ours for line in lines]
    assert json.loads((tmp_path / "runs" / "tiny-figure2.json").read_text())["item"] == "Figure 2"


def test_a_part_that_cannot_start_leaves_the_others_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path / "empty"))
    parts = {"there": {"data": "digits"}, "missing": {"data": "tiny-imagenet"}}
    base = {"clients": 4, "cohort": 2, "rounds": 1}
    compared = {"seeds": [0], "base": base, "settings": parts, "methods": [{"method": "fedavg"}]}
    drawn = [{"kind": "accuracy"}, {"kind": "accuracy", "settings": ["missing"]}]
    item = {"number": "Table 1", "about": "two parts", "comparison": compared, "figures": drawn}
    whole = validate(Paper, {"name": "tiny", "title": "Tiny", "items": {"table1": item}}, "tiny")
    _, figures, table = perform(whole, whole.items["table1"], tmp_path / "runs")
    assert {path.suffix for path in figures} == {".png", ".pdf"}
    assert [failure["run"] for failure in table["failures"]] == ["missing/fedavg/seed-0"]


def test_figure_5_of_fedfft_needs_the_partition_only() -> None:
    whole = paper("fedfft")
    assert {trial.config.rounds for trial in comparison(whole, whole.items["figure5"]).trials()} == {1}


def test_a_step_that_could_not_be_measured_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [nan, 0.5]
    module = sys.modules["undrift.papers.estimate"]  # the package has a function of this name
    monkeypatch.setattr(module, "_time_example", lambda _: found.pop(0))
    config, file = Config(model="cnn", local={"batch_size": 2}), tmp_path / "steps.json"  # type: ignore[arg-type]
    steps = Steps(file)
    assert isnan(steps.seconds(config)) and isnan(steps.seconds(config)) and json.loads(file.read_text()) == {}
    assert Steps(file).seconds(config) == 1.0


def test_runs_that_differ_in_numbers_are_rehearsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("undrift.papers.runner.dry_run", made.append)
    settings: list[dict[str, Any]] = [
        {"method": "fedsam", "arguments": {"rho": 0.1}, "partition": "dirichlet:0.1"},
        {"method": "fedsam", "arguments": {"rho": 0.2}, "partition": "dirichlet:0.6", "clients": 50},
        {"method": "fedavg + sam(rho=0.1)"},
        {"method": "fedavg + sam(rho=0.25)"},
        {"method": "fedsam", "model": "resnet8"},
    ]
    assert rehearse([Config.build(values) for values in settings]) == len(made) == 3


def test_every_kind_of_figure_is_known() -> None:
    from undrift.report import KINDS

    drawn = chain.from_iterable(item.figures for name in papers() for item in paper(name).items.values())
    assert {figure.kind for figure in drawn} <= KINDS.keys()


@pytest.mark.quick
def test_the_command_lists_and_rehearses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path))
    bad = WIDE.invoke(app, ["paper", "fedfft", "table1", "--scale", "huge"])
    assert (bad.exit_code, bad.output) == (2, "undrift paper: --scale must be paper or small, got 'huge'\n")
    listed = WIDE.invoke(app, ["paper", "fedfft", "--scale", "small"])
    assert listed.exit_code == 0
    assert "gradients" in listed.output


def test_only_the_command_imports_the_experiments() -> None:
    """The files of the papers are data: no other part of the package reads them when it runs."""
    source = Path(undrift.__file__).parent
    importing = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if path.parent != source / "papers" and "undrift.papers" in path.read_text(encoding="utf-8")
    ]
    assert importing == ["cli/training/paper.py"]


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("fedfsa", "table1", ("decay 0.998", "augmentation")),
        ("fedfft", "figure4", ("layer4.1.bn2",)),
        ("fedscam", "figure22", ("dampening off",)),
        ("fedscam", "section5.2", ("dampening off",)),
    ],
)
def test_what_a_paper_leaves_open_is_named(name: str, key: str, words: tuple[str, ...]) -> None:
    found = paper(name).items[key].differs
    assert all(word in found for word in words), found


def test_the_guide_to_figures_names_those_that_are_drawn_with_a_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "seed-figures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `undrift figure (\w+) RUN[^`]*` \|[^|]*\| ([^|]*)\|$", page, flags=re.MULTILINE)
    seen = 0
    for kind, shown in rows:
        for title, numbers in re.findall(r"(\w+), figures? ((?:\d+\w?(?:, | and | to )?)+)", shown):
            first, to, last = numbers.partition(" to ")
            keys = range(int(first), int(last) + 1) if to else re.findall(r"\d+\w?", numbers)
            for key in keys:
                item = paper({"SpecGradFilter": "specgrad"}.get(title, title.lower())).items[f"figure{key}"]
                assert kind in {drawing.kind for drawing in item.figures}, f"{title}, figure {key} is no {kind}"
                seen += 1
    assert seen > 20 and len(rows) == page.count("| `undrift figure ")
