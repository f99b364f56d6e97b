"""Comparisons: fair rows, nothing run twice, interrupted ones equal to the bit, a table of the runs' own numbers."""

import json
import shutil
import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import RUN, count_runs, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.data import DataError
from undrift.runs import ConfigError
from undrift.runs.folder.files import RunError, RunLockedError
from undrift.runs.loop import run as runs
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import merge_settings
from undrift.studies.compare import Comparison, compare
from undrift.studies.run_result import result
from undrift.studies.statistics import paired_difference, to_markdown

module = sys.modules[compare.__module__]  # its name is the function's in the package

pytestmark = pytest.mark.usefixtures("tiny")

FILE: dict[str, Any] = {
    "name": "toys",
    "seeds": [0, 1],
    "baseline": "fedavg",
    "base": {**RUN, "target": 0.3},
    "methods": [{"method": "fedavg"}, {"method": "fedprox", "label": "prox-0.1", "arguments": {"mu": 0.1}}],
    "settings": {"plain": {}, "even": {"partition": "iid"}},
}
LABELS = ("fedavg", "prox-0.1")
ONE = {**FILE, "seeds": [0], "settings": {}}


def built(**changes: Any) -> Comparison:
    return Comparison.build({**FILE, **changes})


def hashes(out: Path) -> dict[str, str]:
    return {str(p.parent.relative_to(out)): json.loads(p.read_text())["sha256"] for p in out.rglob("summary.json")}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are started or gone on with in a test."""
    return count_runs(monkeypatch)


@pytest.fixture(scope="module")
def done(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:  # noqa: F811
    """A comparison that has ended, and its table."""
    out = tmp_path_factory.mktemp("compare") / "out"
    return out, compare(built(), out)


@pytest.mark.sweep(every=4)
def test_layout_and_files(done: tuple[Path, dict[str, Any]]) -> None:
    out, table = done
    places = [f"{s}/{m}/seed-{k}" for s in ("plain", "even") for m in LABELS for k in (0, 1)]
    assert sorted(hashes(out)) == sorted(places)
    assert json.loads((out / "table.json").read_text()) == table and table["failures"] == []
    assert (out / "table.md").read_text() == to_markdown(table["rows"])
    assert Comparison.read(out / "compare.toml") == built()
    assert [(row["setting"], row["label"]) for row in table["rows"]] == [
        (s, m) for s in ("plain", "even") for m in LABELS
    ]


@pytest.mark.sweep(every=3)
def test_rows_are_those_of_the_runs(done: tuple[Path, dict[str, Any]]) -> None:
    out, table = done
    report = {
        k: {m: json.loads((out / f"plain/{m}/seed-{k}/summary.json").read_text()) for m in LABELS} for k in (0, 1)
    }
    fedavg, prox = table["rows"][:2]
    assert fedavg["last"] == pytest.approx(sum(report[k]["fedavg"]["accuracy"] for k in (0, 1)) / 2)
    assert fedavg["client"] == pytest.approx(sum(report[k]["fedavg"]["client_accuracy"] for k in (0, 1)) / 2)
    assert fedavg["gradients"] == sum(report[k]["fedavg"]["gradients"] for k in (0, 1)) / 2
    last = [{k: report[k][m]["accuracy"] for k in (0, 1)} for m in ("prox-0.1", "fedavg")]
    expected = paired_difference(*last)  # type: ignore[arg-type]
    assert expected and (prox["last_low"], prox["last_high"]) == (expected.low, expected.high)
    assert prox["traffic"] == 1.0 and prox["seconds_per_round"] > 0


@pytest.mark.sweep(every=2)
def test_the_same_seed_is_the_same_start(done: tuple[Path, dict[str, Any]]) -> None:
    """Methods share partition and first weights; the next seed has others."""
    out, _ = done
    split = {
        k: {json.loads((out / f"plain/{m}/seed-{k}/partition.json").read_text())["sha256"] for m in LABELS}
        for k in (0, 1)
    }
    assert len(split[0]) == len(split[1]) == 1 and split[0] != split[1]
    first = {k: {_begin(out / f"plain/{m}/seed-{k}") for m in LABELS} for k in (0, 1)}
    assert len(first[0]) == len(first[1]) == 1 and first[0] != first[1]


def _begin(folder: Path) -> str:
    events = map(json.loads, (folder / "audit.jsonl").read_text().splitlines())
    return str(next(event["sha256"] for event in events if event["event"] == "begin"))


@pytest.mark.sweep(every=3)
def test_a_second_call_runs_nothing_and_needs_no_data(
    done: tuple[Path, dict[str, Any]], started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prepare", None)
    ended = []
    assert compare(built(), done[0], lambda trial, row: ended.append((trial.name, row))) == done[1]
    assert started == [] and len(ended) == 8 and all(row is None for _, row in ended)


@pytest.mark.sweep(every=3)
def test_only_what_is_new_runs_and_data_are_loaded_once(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, prepare = [], module.prepare
    monkeypatch.setattr(module, "prepare", lambda config: loaded.append(config.seed) or prepare(config))  # type: ignore[func-returns-value]
    compare(Comparison.build(ONE), tmp_path)
    assert started == ["fedavg/seed-0", "prox-0.1/seed-0"] and loaded == [0]
    started.clear()
    methods = [*FILE["methods"], {"method": "fedsam"}]
    table = compare(Comparison.build({**ONE, "seeds": [0, 5], "methods": methods}), tmp_path)
    assert started == ["fedsam/seed-0", "fedavg/seed-5", "prox-0.1/seed-5", "fedsam/seed-5"] and loaded == [0, 0, 5]
    assert [row["seeds"] for row in table["rows"]] == [[0, 5]] * 3


def test_interrupted_is_uninterrupted(done: tuple[Path, dict[str, Any]], tmp_path: Path, started: list[str]) -> None:
    comparison = built(settings={"plain": {}})

    def stop(trial: Any, row: dict[str, Any] | None) -> None:
        if row is not None and trial.label == "prox-0.1" and row["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(comparison, tmp_path, stop)
    assert list(hashes(tmp_path)) == ["plain/fedavg/seed-0"]
    assert [row["label"] for row in json.loads((tmp_path / "table.json").read_text())["rows"]] == ["fedavg"]
    started.clear()
    rows: list[int] = []
    table = compare(comparison, tmp_path, lambda trial, row: rows.append(row["round"]) if row else None)
    assert started[0] == "prox-0.1/seed-0" and rows == [2, 1, 2, 1, 2], "it goes on after its first round"
    expected = {name: sha for name, sha in hashes(done[0]).items() if name.startswith("plain")}
    assert hashes(tmp_path) == expected
    assert table["rows"][1]["last_difference"] == done[1]["rows"][1]["last_difference"]


def test_more_rounds_go_on_and_fewer_are_cut(tmp_path: Path, started: list[str]) -> None:
    methods = FILE["methods"][:1]
    longer = Comparison.build(merge_settings(ONE, {"methods": methods, "base": {"rounds": 3}}))
    compare(Comparison.build({**ONE, "methods": methods}), tmp_path)
    compare(longer, tmp_path)
    assert started == ["fedavg/seed-0"] * 2 and len(hashes(tmp_path)) == 1
    folder = tmp_path / "fedavg/seed-0"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    table = compare(Comparison.build({**ONE, "methods": methods}), tmp_path)
    assert len(rows) == 3 and len(started) == 2
    assert table["rows"][0]["last"] == rows[1]["accuracy"] == result(folder, Config.build(RUN))["accuracy"]


def test_one_failing_run_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = runs.start

    def broken(config: Config, *rest: Any) -> Any:
        if config.method == "fedavg":
            raise RuntimeError("the disk is full")
        return start(config, *rest)

    monkeypatch.setattr(runs, "start", broken)
    table = compare(Comparison.build(ONE), tmp_path)
    assert [row["label"] for row in table["rows"]] == ["prox-0.1"]
    (failure,) = table["failures"]
    assert (failure["run"], failure["error"]) == ("fedavg/seed-0", "RuntimeError: the disk is full")
    assert "broken" in failure["trace"]


@pytest.mark.sweep(every=4)
def test_a_folder_of_other_settings_is_refused(done: tuple[Path, dict[str, Any]], started: list[str]) -> None:
    """Nothing is written: the files of the finished comparison stay as they are."""
    other = built(base=merge_settings(FILE["base"], {"local": {"lr": 0.05}, "model": "cnn"}), settings={"plain": {}})
    out = done[0].parent / "out"
    files = {name: (out / name).read_bytes() for name in ("compare.toml", "table.json", "table.md")}
    with pytest.raises(RunError) as refused:
        compare(other, out)
    text = str(refused.value)
    assert "seed-0 contains a run with other settings (model: 'small-cnn' there, 'cnn' given" in text
    assert "local.lr: 0.1 there, 0.05 given); name another folder with --out" in text
    assert text.endswith(" (and 3 more)") and started == []
    assert {name: (out / name).read_bytes() for name in files} == files


def test_a_run_that_another_process_finished_is_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = runs.start

    def elsewhere(config: Config, folder: Path, *rest: Any) -> Any:
        start(config, folder, *rest)
        raise RunLockedError(f"{folder} is in use by process 1")

    monkeypatch.setattr(runs, "start", elsewhere)
    table = compare(Comparison.build(ONE), tmp_path)
    assert table["failures"] == [] and [row["label"] for row in table["rows"]] == ["fedavg", "prox-0.1"]


TWICE = [{"method": "fedavg"}, {"method": "fedavg", "arguments": {}}]
CHANGED = [{"method": "fedavg", "local": {"lr": 0.3}}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sedes": [1]}, "sedes: unknown key; did you mean 'seeds'"),
        ({"methods": [{"method": "fedavg", "lable": "x"}]}, r"methods\.0\.lable: unknown key; did you mean 'label'"),
        ({"base": {"roundz": 1}}, "plain/fedavg: roundz: unknown key; did you mean 'rounds'"),
        ({"base": {"method": "fedavg"}}, r"base\.method: every row has its own: write it in \[\[methods\]\]"),
        ({"settings": {"a": {"seed": 3}}}, r"settings\.a\.seed: every row has its own: write it in seeds"),
        ({"base": {"partition": "dirichlett:1"}}, "plain/fedavg: partition: no scheme is named 'dirichlett'"),
        ({"methods": TWICE}, "methods: fedavg is given 2 times; give one of them another label"),
        ({"methods": CHANGED}, r"fedavg changes lr of local, but rows share .* own_local = true"),
        ({"methods": [{"method": "fedprox", "arguments": {"nu": 1}}], "baseline": ""}, "arguments of fedprox: .*nu"),
        ({"baseline": "fedavgg"}, "baseline: no row is labelled 'fedavgg'; did you mean 'fedavg'"),
        ({"methods": [{"method": "fedavg", "label": "../up"}], "baseline": "../up"}, r"'\.\./up' cannot be a folder's"),
        (
            {"methods": [{"method": "fedfft + drift:scaffold-i(option=1)"}], "baseline": ""},
            r"methods: 'fedfft \+ drift:scaffold-i\(option=1\)' cannot name its row's folder; give the row a label, "
            r'label = "fedfft-drift-scaffold-i-option-1"$',
        ),
        (
            {"methods": [{"method": "mine:fedmine", "grid": {"arguments.a": [0.1, 0.2]}}], "baseline": ""},
            r'methods: .mine:fedmine. cannot name .*, label = "mine-fedmine"$',
        ),
        ({"settings": {"table.json": {}}}, "'table.json' cannot be a folder's name"),
        ({"seeds": [1, 1]}, "seeds: 1 is given 2 times"),
        ({"seeds": []}, "seeds: .*at least 1 item"),
        (
            {"base": {"target": "best"}},
            r"plain/fedavg: target: must be a number in \(0, 1\], .* or \"0.95 \* baseline\"",
        ),
        ({"table": {"columns": ["costs"]}}, r"table\.columns\.0: input should be 'accuracy' or 'cost', got 'costs'"),
        ({"methods": []}, "methods: .*at least 1 item"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(**changes)


def test_tuned_rows_and_the_first_as_baseline() -> None:
    comparison = built(methods=[*CHANGED, {"method": "fedsam"}], own_local=True, baseline="")
    assert comparison.baseline == "fedavg"
    lr = {trial.label: (trial.config.local.lr, trial.config.local.batch_size) for trial in comparison.trials()}
    assert lr == {"fedavg": (0.3, 10), "fedsam": (0.1, 10)}
    assert {trial.config.engine.workers for trial in comparison.trials({"workers": 5, "name": None})} == {5}


@pytest.mark.quick
def test_the_command(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    file, runner = tmp_path / "toys.toml", CliRunner(env={"COLUMNS": "80"})
    file.write_text(built().toml())
    shown = runner.invoke(app, ["compare", str(file), "--out", str(done[0]), "--json"])
    assert shown.exit_code == 0 and json.loads(shown.stdout) == done[1]
    shown = runner.invoke(app, ["compare", str(file), "--out", str(done[0])])
    assert shown.exit_code == 0 and "prox-0.1" in shown.stdout and "paired 95% interval" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines()[:-1])
    file.write_text(built(base={**RUN, "augment": "flip"}, settings={"plain": {}}).toml())
    failed = runner.invoke(app, ["compare", str(file), "--out", str(done[0])])
    assert failed.exit_code == 2 and failed.stderr.count("augment: 'none' there, 'flip' given") == 1
    file.write_text(built(settings={"plain": {}}).toml())
    failed = runner.invoke(app, ["compare", str(file), "--out", str(done[0]), "--preset", "papers"])
    assert failed.exit_code == 2 and failed.stderr.count("local.decay: 1.0 there, 0.998 given") == 1
    assert "epochs" not in failed.stderr, "the file's own epochs override the preset's"
    failed = runner.invoke(app, ["compare", str(file), "--out", str(done[0]), "--precision", "bf16"])
    assert failed.exit_code == 2 and failed.stderr.count("local.precision: 'fp32' there, 'bf16' given") == 1
    assert runner.invoke(app, ["compare", str(tmp_path / "none.toml")]).exit_code == 2
    compare(built(), done[0])


def test_targets_relative_to_the_baseline(done: tuple[Path, dict[str, Any]], started: list[str]) -> None:
    """Only the table depends on them: finished runs are not run again, and their rows have the rounds."""
    out, goals = done[0], [0.01, "baseline", "0.5 * baseline"]
    comparison = built(base={**FILE["base"], "target": goals}, table={"columns": ["accuracy", "cost"]})
    assert {trial.config.target for trial in comparison.trials()} == {(0.01,)}
    table = compare(comparison, out)
    assert started == [] and Comparison.read(out / "compare.toml") == comparison
    fedavg, prox = table["rows"][:2]
    assert [cost["target"] for cost in prox["costs"]] == [*goals, None]
    report = [json.loads((out / f"plain/fedavg/seed-{k}/summary.json").read_text()) for k in (0, 1)]
    best = fedavg["costs"][1]
    assert best["accuracy"] == fedavg["best"] and best["reached"] == 2
    assert best["rounds"] == sum(summary["best_round"] for summary in report) / 2
    whole = prox["costs"][-1]
    assert (whole["rounds"], whole["gradients"]) == (2, prox["gradients"]) and whole["ratio"]["bytes"] == 1
    written = (out / "table.md").read_text()
    assert written == to_markdown(table["rows"], ("accuracy", "cost"))
    assert "rounds to 0.5 * fedavg's best" in written and "| whole run | prox-0.1 |" in written
    file = out.parent / "goals.toml"
    file.write_text(comparison.toml())
    for width in (80, 120):
        call = ["compare", str(file), "--out", str(out), "--columns", "cost"]
        shown = CliRunner().invoke(app, call, env={"COLUMNS": str(width)})
        lines = shown.stdout.splitlines()
        assert shown.exit_code == 0 and "(0.5 * baseline)" in shown.stdout and "best %" not in shown.stdout
        assert all(len(line) <= width for line in lines[:-1])
        assert [line.split()[0] for line in lines if "prox-0.1" in line].count("even") % 4 == 0, "no line is broken"
    compare(built(), out)


def test_the_example_can_be_read() -> None:
    comparison = Comparison.read(Path(__file__).parents[2] / "examples" / "compare-fashion.toml")
    assert [entry.label for entry in comparison.methods] == ["fedavg", "specgrad", "fedfft-d", "scaffold"]
    assert len(comparison.trials()) == 12 and comparison.trials()[0].config.rounds == 20


def test_an_infinite_metric_is_infinite_in_the_table_and_null_in_json(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(done[0], tmp_path / "out")
    monkeypatch.setattr("undrift.studies.results_sheet.result", lambda *given: {**result(*given), "accuracy": inf})
    table = compare(built(), tmp_path / "out")
    assert not table["failures"] and [row["last"] for row in table["rows"]] == [inf] * 4
    text = (tmp_path / "out" / "table.json").read_text()
    assert "Infinity" not in text and "NaN" not in text and json.loads(text)["rows"][0]["last"] is None


def test_runs_are_read_without_the_files_they_began_with(tmp_path: Path) -> None:
    values = {**ONE, "base": {**RUN, "init": str(tmp_path / "gone.safetensors")}}
    with pytest.raises(ConfigError, match=r"gone\.safetensors: there is no such file"):
        Comparison.build(values)
    assert len(Comparison.build(values, check=False).trials(check=False)) == 2


def test_data_that_are_missing_are_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = list[str]()

    def prepare(config: Config) -> None:
        searched.append(config.data)
        raise DataError(f"{config.data} was not found")

    monkeypatch.setattr(module, "prepare", prepare)
    table = compare(built(), tmp_path / "out")
    assert len(searched) == 1
    assert len(table["failures"]) == 8 and all("was not found" in one["error"] for one in table["failures"])
