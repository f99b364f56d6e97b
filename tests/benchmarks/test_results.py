"""The committed results: pages made from them are up to date, and a run of them comes out the same again."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from undrift.data.arrays.dataset import DataError
from undrift.runs import Config
from undrift.runs.loop.run import complete
from undrift.runs.setup.prepare import prepare
from undrift.studies.statistics import Difference
from undrift.util.storage.metrics import Metrics

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "studies"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)


def lines() -> list[dict[str, Any]]:
    from study import RESULTS, read

    return [line for path in sorted(RESULTS.glob("*.jsonl")) for line in read(path.stem)]


def test_pages_are_up_to_date() -> None:
    from pages import generated

    for path, text in generated(draws=False).items():  # fonts differ between versions
        same = path.exists() if path.suffix == ".svg" else path.read_text() == text
        assert same, f"{path.name} is not up to date: run make results"


def test_every_line_has_settings_a_hash_and_a_curve() -> None:
    for line in lines():
        config = Config.build(line["config"])
        assert len(line["sha256"]) == 64 and config.seed == line["seed"] and config.local.lr == line["lr"]
        assert line["curve"][-1][0] == config.rounds and all(0 <= value <= 1 for _, value in line["curve"])


def again(line: dict[str, Any], rounds: int, out: Path) -> dict[str, Any]:
    """The last row of a run that is run again."""
    config = Config.build({**line["config"], "rounds": rounds})
    try:
        ready = prepare(config)
    except DataError as error:
        pytest.skip(str(error))
    complete(config, out, lambda: ready, None)
    return Metrics(out / "metrics.jsonl").rows()[-1]


@pytest.mark.sweep(every=4)
def test_one_of_them_again(tmp_path: Path) -> None:
    """Any line; the first evaluation. Kernels of other processors round differently, and early accuracies swing."""
    line = Random().choice([x for x in lines() if x["setting"] != "feature"])
    rounds, accuracy = line["curve"][0]
    print(line["setting"], line["label"], line["seed"])
    row = again(line, rounds, tmp_path / "run")
    assert row.get("personal_accuracy", row["accuracy"]) == pytest.approx(accuracy, abs=0.2)


@pytest.mark.slow
def test_the_hash_of_one_of_them(tmp_path: Path) -> None:
    """On the processor and the torch that made them, a whole run ends with the same bits."""
    from study import RESULTS, machine

    if json.loads((RESULTS / "machine.json").read_text()) != machine():
        pytest.skip("the committed runs were made on another machine")
    line = Random().choice(lines())
    again(line, line["config"]["rounds"], tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["sha256"] == line["sha256"]


def test_the_numbers_of_a_page_by_hand() -> None:
    from beside import gap_text
    from gaps import gap, late
    from pages import table

    def line(label: str, seed: int, value: float) -> dict[str, Any]:
        return {
            "setting": "s",
            "label": label,
            "seed": seed,
            "lr": 0.1,
            "curve": [[1, 0.0], [2, value], [3, value], [4, value]],
        }

    found = [line("fedavg", 0, 0.5), line("fedavg", 1, 0.6), line("x", 0, 0.6), line("x", 1, 0.7)]
    assert late(found[0]) == pytest.approx(50)
    assert gap_text(gap(found, "s", "x", "fedavg")) == "+10.0 [+10.0, +10.0]"
    assert gap_text(None) == "" and gap(found, "t", "x", "fedavg") is None
    study = {"settings": {"s": {}}, "methods": [{"label": "fedavg"}, {"label": "x"}]}
    assert "| s | x | 0.1 | 65.0 ± 7.1 | 2 | +10.0 [+10.0, +10.0] |" in table(study, found, ["fedavg"])


def test_differences_at_every_evaluation_and_rows_without_results() -> None:
    from pages import measured, trend

    def line(label: str, seed: int, *accuracies: float) -> dict[str, Any]:
        return {"setting": "a", "label": label, "seed": seed, "curve": [[5, accuracies[0]], [10, accuracies[1]]]}

    study = {"settings": {"a": {}}, "methods": [{"label": x} for x in ("base", "later", "row")]}
    lines = [line("base", 0, 0.5, 0.6), line("row", 0, 0.7, 0.61), line("row", 1, 0.1, 0.1)]
    assert [row["label"] for row in measured(study, lines)["methods"]] == ["base", "row"]
    heading, _, only = trend(study, lines, "base").splitlines()
    assert heading == "| setting | row | round 5 | round 10 |" and only == "| a | row | +20.0 | +1.0 |"


def test_a_failed_run_ends_a_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its row would be one of survivors."""
    import study

    failure = {"run": "a/fedavg/seed-0", "error": "ValueError: no", "trace": ""}
    monkeypatch.setattr(study, "compare", lambda *_, **__: {"failures": [failure]})
    values = {"seeds": [0], "base": {"data": "digits", "rounds": 1, "local": {"lr": 0.1}}, "settings": {"a": {}}}
    whole = study.Comparison.build({**values, "methods": [{"method": "fedavg"}]})
    with pytest.raises(SystemExit, match=r"the row is incomplete.*\na/fedavg/seed-0: ValueError: no"):
        study.study_row(whole, "a", "fedavg", tmp_path / "x")


def test_problems_name_compositions_once() -> None:
    """The evidence of `undrift advise`: equal weights for all rows, a filter by its name, rounds and clients."""
    from pages import problems
    from study import committed, read

    name = "orders-cifar"
    first = problems(name, committed(name), read(name))[0]
    assert (first["kind"], first["family"], first["clients"], first["cohort"]) == ("image", "convolutional", 100, 10)
    assert {"uniform", "specgrad"} <= {row["method"] for row in first["rows"]}
    assert problems("ablation-cifar", committed("ablation-cifar"), read("ablation-cifar")) == [], "rates were not tuned"


def test_a_study_that_has_just_begun_has_a_figure() -> None:
    from pages import figure

    study = {"settings": {"a": {}}, "methods": [{"label": "base"}, {"label": "row"}]}
    lines = [{"setting": "a", "label": x, "seed": 0, "curve": [[5, 0.5]]} for x in ("base", "row")]
    assert figure(study, lines, "base").startswith("<?xml")
    assert figure(study, lines, "base") == figure(study, lines, "base")


def test_curves_are_means_over_seeds() -> None:
    from study_curves import curves, mean_curve

    def line(setting: str, label: str, seed: int, last: float) -> dict[str, Any]:
        return {"setting": setting, "label": label, "seed": seed, "curve": [[5, 0.5], [10, last]]}

    lines = [line("a", "base", 0, 0.6), line("a", "base", 1, 0.8), line("b", "base", 0, 0.9), line("b", "row", 0, 0.7)]
    assert mean_curve(lines, "a", "base") == [(5, 50.0), (10, pytest.approx(70.0))]
    assert mean_curve(lines, "a", "row") == []
    study = {"settings": {"a": {}, "b": {}, "later": {}}, "methods": [{"label": "base"}, {"label": "row"}]}
    drawn = curves({**study, "baseline": "base"}, lines)
    assert drawn.startswith("<?xml") and drawn == curves({**study, "baseline": "base"}, lines)


def test_what_each_part_adds() -> None:
    from parts import PARTS, part_gaps, parts_figure, parts_table, with_table

    found = part_gaps()
    assert list(found) == [f"{data}, Dirichlet {x}" for data in ("Fashion-MNIST", "CIFAR-10") for x in ("0.1", "0.6")]
    assert all(set(gaps) <= set(PARTS) and gaps["gradients filtered"].low > 0 for gaps in found.values())  # type: ignore[operator]
    table = parts_table({"a": {"SAM": Difference(-1.0, -2.0, 1.0, 3)}, "b": {}})
    assert table.splitlines()[2:] == ["| SAM | `fedsam` - `uniform` | -1.0 [-2.0, +1.0] |  |"]
    page = "text\n<!-- begin: made by make results -->\nold\n<!-- end -->\nmore\n"
    assert with_table(page, "new") == page.replace("old", "\nnew\n") == with_table(with_table(page, "new"), "new")
    with pytest.raises(ValueError, match="the page has no"):
        with_table("text", "new")
    drawn = parts_figure({"a": {"SAM": Difference(-1.0, -2.0, 1.0, 3)}, "b": {}})
    assert drawn.startswith("<?xml") and drawn == parts_figure({"a": {"SAM": Difference(-1.0, -2.0, 1.0, 3)}, "b": {}})


def test_strict_studies_meet_the_protocol_and_others_show_what_they_lack() -> None:
    """No tuned rate at an edge, no row without trials, no difference without its interval, seeds and file."""
    from beside import gap_text, study_file
    from pages import page
    from protocol_state import claims_table, measured_claims, strict
    from rates import read_rates, search_faults
    from study import RESULTS, committed, read

    for path in sorted(RESULTS.glob("*.jsonl")):
        name, found, file = path.stem, read(path.stem), study_file(path.stem)
        faults = search_faults(found, read_rates(RESULTS, name))
        text = page(name, committed(name), found)
        assert strict(file) == strict(committed(name))
        if strict(file):
            assert not any(faults.values()), f"{name}: {faults}"
            assert {x["seed"] for x in found} <= set(file["seeds"]) and "Older evidence" not in text
            assert f"rates/{name}.jsonl" in text
            searched = {len(x["search"]["seeds"]) for x in read_rates(RESULTS, name)}
            assert min(searched) >= 2
        else:
            assert "**Older evidence**: this study does not meet the" in text
            for fault in ("without committed trials", "with the best rate at an edge of the grid"):
                assert not faults[fault] or f"{len(faults[fault])} {fault}" in text.replace("\n", " ")
    shown = claims_table()
    for claim in measured_claims():
        file = study_file(claim.study)
        assert claim.difference.pairs == len(file["seeds"]) and f"]({claim.study}.md): points over" in shown
        assert claim.other != file["baseline"] or f" {gap_text(claim.difference)} |" in shown
    for text in (x for x in shown.splitlines() if x.startswith("[")):
        assert re.fullmatch(
            r"\[[^]]+\]\(\S+\.md\): .* seeds \d+ to \d+, corrected for all \d+ differences of the page", text
        )


def test_a_study_whose_baseline_has_not_run_has_no_table_of_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    import protocol_state

    own = protocol_state.Claim("strict-newest", "s", "fedacg", "specgrad", Difference(1.0, 0.5, 1.5, 10))
    monkeypatch.setattr(protocol_state, "measured_claims", lambda: [own])
    assert protocol_state.claims_table() == "No pair of rows is complete yet."
    monkeypatch.setattr(protocol_state, "measured_claims", lambda: [own, own._replace(other="uniform")])
    assert "| fedacg | +1.0 [+0.5, +1.5] |" in protocol_state.claims_table()


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_the_front_pages_claim_what_the_strict_studies_have(name: str) -> None:
    """The paragraph of the result: each difference is one of the claims, with their number and the seeds."""
    from beside import gap_text, study_file
    from protocol_state import claims, measured_claims

    text = " ".join((ROOT / name).read_text().split())
    result = text[text.index("Tuned alike on seeds") :].split(" are older")[0].split(" Earlier numbers")[0]
    found = re.findall(r"[+-]\d+\.\d \[[^]]*\]", result)
    every = measured_claims()
    assert found and set(found) <= {gap_text(x.difference) for x in every if x.other == "uniform"}
    newest = study_file("strict-newest")
    assert f"all {claims(newest)} differences" in result and len(newest["seeds"]) == 10
    for name in ("strict-filters", "strict-tables"):
        assert f"corrected for {claims(study_file(name))} differences" in result
    gains = {
        x.difference.mean: gap_text(x.difference)
        for x in every
        if (x.setting, x.other) == ("labels-and-columns", "uniform")
        and x.label in ("specgrad", "center-maps", "whitened")
    }
    assert len(gains) == 3 and f"filters gain {gains[min(gains)]} to {gains[max(gains)]}" in result


def test_faults_of_a_search() -> None:
    from rates import search_faults

    line = {"setting": "s", "label": "x", "seed": 5, "lr": 0.2, "config": {"arguments": {"r": 0.1}}}
    search = {
        **{"setting": "s", "label": "x", "by": "late", "seeds": [1, 2], "edges": {"lr": "inside", "r": "inside"}},
        "choice": {"lr": 0.2, "r": 0.1},
    }

    def faults(line: dict[str, Any], *searches: dict[str, Any]) -> list[str]:
        return [fault for fault, rows in search_faults([line], searches).items() if rows]

    assert faults(line, search) == []
    assert faults(line) == ["without committed trials"]
    assert faults(line, search | {"edges": {"lr": "at the edge"}}) == ["with the best rate at an edge of the grid"]
    assert faults(line, search | {"by": "best"}) == ["not tuned by late accuracy"]
    assert faults(line | {"lr": 0.4}, search) == faults(line | {"config": {}}, search) != []
    assert faults(line | {"seed": 2}, search) == ["tuned on a seed that judges"]
    older = {"setting": "s", "label": "x", "rates": [[0.1, 0.5], [0.2, 0.6]], "edge": "at the edge"}
    assert faults(line, older) == ["with the best rate at an edge of the grid", "not tuned by late accuracy"]


def test_no_seed_of_a_strict_study_was_used_before_or_is_tuned_on() -> None:
    from beside import HERE, study_file
    from protocol_state import strict

    files = {path.stem: study_file(path.stem) for path in sorted(HERE.glob("*.toml"))}
    tuned = {seed for file in files.values() for seed in file.get("tune", {}).get("seeds", ())} | {100}
    before = {seed for file in files.values() if not strict(file) for seed in file["seeds"]}
    final = {seed for file in files.values() if strict(file) for seed in file["seeds"]}
    assert final and not final & (tuned | before)


def test_what_a_strict_page_counts() -> None:
    from protocol_state import against, claims, level_of, rows_left

    study: dict[str, Any] = {
        **{"protocol": "strict", "baseline": "uniform", "seeds": [1, 2], "settings": {"a": {}, "b": {}}},
        "methods": [{"method": x} for x in ("uniform", "specgrad", "fedsam")],
    }
    assert against(study) == ["uniform", "specgrad"] and claims(study) == 2 * (2 + 1)
    assert claims(study | {"against": ["fedsam", "specgrad"]}) == 2 * (2 + 1 + 0)
    assert level_of(study) == pytest.approx(1 - 0.05 / 6) and level_of(study | {"protocol": "plain"}) == 0.95
    lines = [{"setting": "a", "label": x, "seed": s} for x in ("uniform", "specgrad") for s in (1, 2)]
    assert "make studies`: a: fedsam; b: all rows. The correction counts them" in rows_left(study, lines)
    every = [{"setting": p, "label": x["method"], "seed": s} for p in "ab" for x in study["methods"] for s in (1, 2)]
    assert rows_left(study, every) == "All rows are complete."


def test_rates_are_collected_and_shown(tmp_path: Path) -> None:
    from rates import collect_searches, rates_figure, rates_table, read_rates, restore_searches

    folder = tmp_path / "runs/tuning/s/row"
    folder.mkdir(parents=True)
    trials = [
        {"lr": 0.1, "score": 0.5, "diverged": False},
        {"lr": 0.2, "score": 0.61, "diverged": False},
        {"lr": 0.4, "score": None, "diverged": True},
    ]
    search = {"trials": trials, "edges": {"lr": "inside"}, "axes": {"lr": [0.1, 0.2, 0.4]}}
    (folder / "tune.json").write_text(json.dumps(search))
    for _ in range(2):  # what is there stays, and nothing appears twice
        collect_searches(tmp_path / "runs", tmp_path, "x")
    found = read_rates(tmp_path, "x")
    assert found == [{"setting": "s", "label": "row", **search}]
    restore_searches(tmp_path / "elsewhere", tmp_path, "x")
    assert json.loads((tmp_path / "elsewhere/tuning/s/row/tune.json").read_text()) == search
    two = search | {
        "axes": {"lr": [0.1], "rho": [1, 2]},
        "trials": [{"lr": 0.1, "rho": x, "score": x / 4} for x in (1, 2)],
    }
    shown = rates_table(
        {"settings": {"s": {}}, "methods": [{"label": "row"}]}, [{"setting": "s", "label": "row", **two}]
    )
    assert "| s | row, rho 1 | 25.0 |" in shown and "| s | row, rho 2 | **50.0** |" in shown
    rows = {"settings": {"s": {}, "t": {}}, "methods": [{"label": "row"}, {"label": "other"}]}
    assert "| s | row | 50.0 | **61.0** | diverged |" in rates_table(rows, found)
    assert rates_figure(tmp_path).startswith("<?xml"), "also without a trial"
    assert rates_table(rows, []) == "" and read_rates(tmp_path, "y") == []


def test_published_differences_beside_ours() -> None:
    """FedFFT's Table 1, CIFAR-10, Dirichlet 0.1: FedAvg 76.00, FedSAM 74.92, SCAFFOLD 78.57, FedDyn 78.08."""
    from beside import beside, contradicts, order_agreement, published_gaps, sources

    source = "fedfft/table1/cifar10-0.1"
    theirs = published_gaps(source, "fedavg")
    assert theirs["fedsam"] == pytest.approx(-1.08) and theirs["scaffold"] == pytest.approx(2.57)
    better, worse, unclear = (
        Difference(4.0, 1.0, 7.0, 3),
        Difference(-3.0, -4.0, -2.0, 3),
        Difference(1.0, -1.0, 3.0, 3),
    )
    assert contradicts(better, -1.08) and contradicts(worse, 2.57)
    assert not contradicts(better, 2.57) and not contradicts(unclear, -1.08)
    ours = {"fedsam": better, "scaffold": worse, "feddyn": unclear}
    # ours fedsam > feddyn > fedavg > scaffold, theirs scaffold > feddyn > fedavg > fedsam; d = 3, 0, 0, 3
    assert order_agreement(ours, theirs) == (pytest.approx(1 - 6 * 18 / (4 * 15)), 4)  # type: ignore[comparison-overlap]
    assert order_agreement({"fedsam": better}, theirs) is None
    text = beside({"s": [source]}, {"s": ours}, "fedavg")
    assert "| fedsam | +4.0 [+1.0, +7.0] | **-1.1** |" in text and "| feddyn | +1.0 [-1.0, +3.0] | +2.1 |" in text
    assert "fedfft, Table 1 -0.80" in text
    assert beside({}, {"s": ours}, "fedavg") == "" and sources("no-such-study") == {}
    for name in ("table-cifar", "table-fashion"):
        for chosen in sources(name).values():
            assert all("fedsam" in published_gaps(x, "fedavg") for x in chosen)


def test_what_make_runs_is_a_program() -> None:
    called = set(re.findall(r"\$\(PYTHON\) (benchmarks/\S+\.py)", (ROOT / "Makefile").read_text()))
    assert {"benchmarks/studies/curves.py", "benchmarks/studies/pages.py"} <= called
    for path in sorted(called):
        assert 'if __name__ == "__main__":' in (ROOT / path).read_text(), f"make runs {path}"


def test_a_page_says_how_clients_are_weighted() -> None:
    from row_texts import weights_text

    def text(*methods: str, **base: Any) -> str:
        return weights_text({"base": base, "methods": [{"method": x} for x in methods]})

    assert text("uniform", "fedexp", "fedvls + uniform") == text("fedavg", weights="uniform") == "equal weights"
    assert text("uniform", "fedavg") == text("fedscam") == "each method with its own weights"


def test_what_papers_state_beside_what_was_measured() -> None:
    from beside import HERE, study_file
    from row_texts import stated_table

    gaps = {"s": {"x": Difference(1.0, 0.5, 1.5, 3)}, "t": {}}
    table = stated_table({"baseline": "base", "stated": {"x": "higher", "y": "level"}}, gaps)
    assert "| row | its paper | s | t |" in table and "differences from base measured here" in table
    assert "| x | higher | +1.0 [+0.5, +1.5] |  |" in table and "| y | level |  |  |" in table
    assert stated_table({"baseline": "base"}, gaps) == ""
    for path in HERE.glob("*.toml"):
        file = study_file(path.stem)
        assert set(file.get("stated", {})) <= {x.get("label", x["method"]) for x in file["methods"]}


def test_a_page_says_what_settings_and_rows_override_and_whose_accuracy_it_has() -> None:
    from pages import page
    from row_texts import judged_text, overrides, setting_texts
    from study import committed, read

    study: dict[str, Any] = {
        "base": {"rounds": 30, "local": {"steps": 10}},
        "settings": {"plain": {}, "few": {"cohort": 5, "rows": {"x": {"local": {"lr": 0.1}, "arguments": {"rho": 1}}}}},
        "methods": [{"label": "x", "method": "fedsam", "local": {"lr": 0.2, "steps": 3}}],
    }
    assert setting_texts(study) == "- `few`: cohort 5; in row `x` arguments.rho 1"
    assert overrides(study["methods"][0]) == "local.steps 3", "the table has the learning rates"
    assert setting_texts({"settings": {"a": {}}, "methods": []}) == ""
    base = {"data": "digits", "clients": 4, "cohort": 2}
    lines = [{"label": x, "config": {**base, "method": x}} for x in ("fedavg", "fedper")]
    assert judged_text(lines[:1]) == ""
    assert judged_text(lines[1:]) == "Accuracies are those of clients' personal models, each on its own client's test."
    assert judged_text(lines).startswith("Accuracies of fedper are those of clients' personal models")
    name = "ablation-fashion"
    assert "- `cohort-5`: cohort 5\n" in page(name, committed(name), read(name))
    personal = page("personal-fashion", committed("personal-fashion"), read("personal-fashion"))
    assert "personal models, each on its own" in personal
