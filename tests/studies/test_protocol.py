"""The strict protocol: rows tuned alike on seeds that do not judge them, grids that close, intervals for all claims."""

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import count_runs
from undrift.cli import app
from undrift.report.collect import collect
from undrift.report.panels.overview import differences
from undrift.report.panels.tables import summary
from undrift.runs import ConfigError
from undrift.runs.folder.files import RunError
from undrift.studies import Comparison, compare, protocol
from undrift.studies.protocol import row_tuning, tuned_row
from undrift.studies.statistics import corrected_level, late_mean, paired_difference, summarise
from undrift.studies.tune import score
from undrift.util.storage.metrics import Metrics

FILE: dict[str, Any] = {
    "name": "toys",
    "protocol": "strict",
    "seeds": [0, 1, 2],
    "base": {
        **{"data": "digits", "clients": 10, "cohort": 2, "rounds": 4, "model": "mlp", "target": ["baseline"]},
        **{"local": {"steps": 2, "batch_size": 10}, "output": {"lens_every": 0}},
    },
    "methods": [{"method": "fedavg"}, {"method": "fedprox"}],
    "tune": {
        "seeds": [7, 8],
        "grid": {"lr": [0.1, 0.2, 0.4, 0.8]},
        "rows": {"fedprox": {"lr": [0.2, 0.4], "mu": [0.0, 1.0]}},
    },
}


def built(**changes: Any) -> Comparison:
    return Comparison.build({**FILE, **changes})


def tuned(**changes: Any) -> Comparison:
    return built(tune={**FILE["tune"], **changes})


def hashes(out: Path) -> dict[str, str]:
    return {str(p.parent.relative_to(out)): json.loads(p.read_text())["sha256"] for p in out.rglob("summary.json")}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A strict comparison that has ended, and its table."""
    out = tmp_path_factory.mktemp("strict") / "out"
    return out, compare(built(), out)


@pytest.mark.sweep(every=2)
def test_every_row_is_tuned_inside_its_grid_on_other_seeds(done: tuple[Path, dict[str, Any]]) -> None:
    out, table = done
    assert table["failures"] == [] and (table["protocol"], table["claims"]) == ("strict", 1)
    for label in ("fedavg", "fedprox"):
        found = json.loads((out / "tuning" / label / "tune.json").read_text())
        rates = found["axes"]["lr"]
        assert found["edges"]["lr"] == "inside" and rates[0] < found["choice"]["lr"] < rates[-1]
        assert (found["by"], found["seeds"]) == ("late", [7, 8])
        for trial in found["trials"]:  # every trial, with each seed
            assert trial["score"] == pytest.approx(sum(trial["seeds"].values()) / 2) and [*trial["seeds"]] == ["7", "8"]
        ran = Comparison.read(out / "compare.toml")
        assert {x.config.local.lr for x in ran.trials() if x.label == label} == {found["choice"]["lr"]}
    assert {name.split("seed-")[1] for name in hashes(out) if name.startswith("tuning")} == {"7", "8"}
    assert {name.split("seed-")[1] for name in hashes(out) if not name.startswith("tuning")} == {"0", "1", "2"}


@pytest.mark.sweep(every=4)
def test_trials_are_scored_as_runs_are_judged(done: tuple[Path, dict[str, Any]]) -> None:
    """By the mean of the last three evaluations: of held-out examples in a trial, of the test set in a run."""
    out, table = done
    found = json.loads((out / "tuning/fedavg/tune.json").read_text())
    rows = Metrics(out / "tuning/fedavg/trials/lr-0.2/seed-7/metrics.jsonl").rows()
    own = next(x["seeds"]["7"] for x in found["trials"] if x["lr"] == 0.2)
    assert own == score(rows, "late") == pytest.approx(sum(x["client_accuracy"] for x in rows[-3:]) / 3)
    last = [Metrics(out / f"fedavg/seed-{seed}/metrics.jsonl").rows()[-3:] for seed in (0, 1, 2)]
    assert table["rows"][0]["late"] == pytest.approx(sum(x["accuracy"] for rows in last for x in rows) / 9)
    assert table["rows"][1].keys() >= {"late_difference", "late_low", "late_high", "gradient_ms"}
    assert "last_difference" not in table["rows"][1]
    text = (out / "table.md").read_text()
    assert "late vs fedavg" in text and "Strict protocol" in text and "last vs" not in text


@pytest.mark.sweep(every=2)
def test_a_second_call_runs_nothing(done: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    out, table = done
    started = count_runs(monkeypatch)
    assert compare(Comparison.read(out / "compare.toml"), out) == table == compare(built(), out)
    assert started == []


@pytest.mark.sweep(every=4)
def test_interrupted_is_uninterrupted(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Ended in a trial and in a final run; all trials, choices and runs come out the same."""

    def stop(at: str) -> Any:
        def watch(trial: Any, row: dict[str, Any] | None) -> None:
            if row is not None and trial.name.startswith(at) and row["round"] == 2:
                raise KeyboardInterrupt

        return watch

    for at in ("tuning/fedprox", "fedprox/seed-1"):
        with pytest.raises(KeyboardInterrupt):
            compare(built(), tmp_path / "out", stop(at))
    compare(built(), tmp_path / "out")
    assert hashes(tmp_path / "out") == hashes(done[0])
    for label in ("fedavg", "fedprox"):
        names = [out / "tuning" / label / "tune.json" for out in (done[0], tmp_path / "out")]
        assert json.loads(names[0].read_text()) == json.loads(names[1].read_text())


@pytest.mark.sweep(every=3)
def test_final_seeds_are_named_before_tuning_begins(done: tuple[Path, dict[str, Any]]) -> None:
    before = (done[0] / "compare.toml").read_text()
    with pytest.raises(RunError, match=r"final seeds, \[0, 1, 2\], were named before tuning began; got \[0, 1, 3\]"):
        compare(built(seeds=[0, 1, 3]), done[0])
    assert (done[0] / "compare.toml").read_text() == before


def test_a_row_at_an_edge_is_widened_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAvg's best rate is beyond this grid: with one widening too few the row has no run."""
    narrow = {"grid": {"lr": [0.001, 0.002]}, "rows": {}, "widenings": 1}
    only = lambda trial: trial.label == "fedavg"  # noqa: E731
    table = compare(tuned(**narrow), tmp_path / "out", only=only)
    assert table["rows"] == [] and [x["run"] for x in table["failures"]] == ["tuning/fedavg"]
    assert "the best lr is 0.004, at the edge of its grid, after 1 widenings" in table["failures"][0]["error"]
    found = json.loads((tmp_path / "out/tuning/fedavg/tune.json").read_text())
    monkeypatch.setattr(protocol, "tune", lambda *_: found | {"edges": {"lr": "at its limit"}})
    tuning = built().row_tuning("", "fedavg")
    with pytest.raises(RunError, match="at its limit"):
        tuned_row(tuning, tmp_path / "none")
    monkeypatch.setattr(protocol, "tune", lambda *_: found | {"edges": {"lr": "inside", "mu": "at its limit"}})
    assert tuned_row(tuning, tmp_path / "none")["choice"] == {"lr": 0.004}, "an argument may end where it is invalid"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [0, 1, 7]}, "7 is one of the final seeds; a row that was tuned on a seed must not be judged on it"),
        ({"seeds": [0, 1]}, r"seeds: the strict protocol needs 3 at least, got \[0, 1\]"),
        ({"tune": {"seeds": [7]}}, r"tune\.seeds: the strict protocol needs two different seeds or more, got \[7\]"),
        ({"tune": {"seeds": [7, 7]}}, r"two different seeds or more, got \[7, 7\]"),
        ({"tune": {"rows": {"fedprx": {"lr": [1, 2]}}}}, "no row is labelled 'fedprx'; did you mean 'fedprox'"),
        ({"tune": {"rows": {"fedprox": {"lr": [0.1, 0.2]}}}}, "has 2 points; every row starts with as many as grid, 4"),
        ({"tune": {"grid": {"mu": [0.1, 0.2]}}}, r"tune\.grid: lr is missing"),
        ({"protocol": "plain"}, 'tune: only the strict protocol tunes rows: write protocol = "strict"'),
        ({"protocol": "hard"}, "protocol"),
        ({"settings": {"tuning": {}}}, "tuning: the strict protocol has a folder of this name"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(**changes)


def test_seeds_and_grid_of_a_file_without_tune() -> None:
    whole = built(tune=None, seeds=[3, 9, 5], methods=[{"method": "fedavg", "local": {"lr": 0.3}}])
    tuning = whole.row_tuning("", "fedavg")
    assert (
        tuning.seeds == (10, 11) and tuning.grid == {"lr": (0.05, 0.1, 0.2, 0.4)} and "lr" not in tuning.base["local"]
    )
    assert whole.with_choice("", "fedavg", {"lr": 0.4}).trials()[0].config.local.lr == 0.4


def test_the_argument_that_is_searched_replaces_the_given_one() -> None:
    row = {"label": "fedprox", "method": "fedprox", "arguments": {"mu": 5.0}}
    tuning = row_tuning(built().search, [0, 1, 2], row, FILE["base"])
    assert tuning.arguments == {} and tuning.config((0.2, 1.0)).arguments == {"mu": 1.0}
    parts = built(settings={"a": {}, "b": {}}).with_choice("b", "fedprox", {"lr": 0.2, "mu": 1.0})
    found = {x.setting: x.config for x in parts.trials() if x.label == "fedprox"}
    assert (found["b"].local.lr, found["b"].arguments) == (0.2, {"mu": 1.0}) and found["a"].arguments == {}
    assert parts.claims == 2


def test_intervals_that_hold_together() -> None:
    """Ten seeds and ten claims: each has the level 0.995, Student's quantile of 0.9975 with 9 freedoms is 3.689662."""
    ours = {seed: 0.01 * seed for seed in range(10)}
    found = paired_difference(ours, dict.fromkeys(range(10), 0.0), corrected_level(10))
    half = 3.6896624 * 0.01 * sqrt(55 / 6) / sqrt(10)  # the variance of 0 to 9 is 82.5 / 9 = 55 / 6
    assert found is not None and (found.low, found.high) == pytest.approx((0.045 - half, 0.045 + half), abs=1e-8)
    assert corrected_level(1) == 0.95 and corrected_level(10) == pytest.approx(0.995)
    with pytest.raises(ValueError, match="claims counts intervals, 1 or more, got 0"):
        corrected_level(0)
    base = {"judged_by": "accuracy", "rounds": 1, "accuracy": 0.0, "best_accuracy": 0.0}
    runs = {
        name: {seed: base | {"late": x[seed]} for seed in ours}
        for name, x in (("a", dict.fromkeys(ours, 0.0)), ("b", ours))
    }
    row = summarise(runs, "a", claims=10)[1]
    assert (row["late_low"], row["late_high"]) == pytest.approx((0.045 - half, 0.045 + half), abs=1e-8)


def test_late_is_the_mean_of_the_last_three() -> None:
    assert late_mean([9.0, 1.0, 2.0, 3.0]) == 2.0 and late_mean([1.0, 2.0]) == 1.5
    rows = [{"round": n, "clients": 1, "rejected": 0, "accuracy": x} for n, x in enumerate((0.9, 0.1, 0.2, 0.3))]
    assert [score(rows, by) for by in ("best", "last", "late")] == [0.9, 0.3, pytest.approx(0.2)]


@pytest.mark.sweep(every=4)
def test_the_command(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    plain = tmp_path / "plain.toml"
    plain.write_text('seeds = [0, 1]\nmethods = [{ method = "fedavg" }]\nbase = { data = "digits" }\n')
    refused = CliRunner().invoke(app, ["compare", str(plain), "--protocol", "strict"])
    assert refused.exit_code == 2 and "the strict protocol needs 3 at least" in refused.output
    shown = CliRunner().invoke(
        app, ["compare", str(done[0] / "compare.toml"), "--protocol", "strict", "--out", str(done[0])]
    )
    assert shown.exit_code == 0 and "late vs fedavg" in shown.output and "Bonferroni" in shown.output


def test_a_report_has_the_corrected_intervals(done: tuple[Path, dict[str, Any]]) -> None:
    """The report shows the differences of the table, of late accuracy, and explains which intervals they have."""
    material = collect([done[0]])
    table, figure = summary(material), next(differences(material))
    assert material.claims == 1 and "Strict protocol: late is the mean" in table.reading
    assert [h for h in table.headings if "vs fedavg" in h] == ["late vs fedavg"]
    assert "late accuracy" in figure.title and "together have 95%" in figure.reading


def test_a_folder_of_another_comparison_is_refused_before_tuning(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text("seeds = [0, 1]\n")
    with pytest.raises(RunError, match="it has a comparison that is not strict; name another folder with --out"):
        compare(Comparison.build(FILE), tmp_path)
    assert (tmp_path / "compare.toml").read_text() == "seeds = [0, 1]\n"
