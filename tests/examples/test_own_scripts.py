"""The scripts of examples/own: run folders, resumed to the bit after kill -9, one hash on every engine."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support import processes
from support.vision import shim_folders
from undrift.cli import app
from undrift.data import available
from undrift.runs.folder.files import read_summary

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "examples" / "own"
NEEDS = {
    "images": ("PIL", "sklearn"),
    "regression": ("sklearn",),
    "multilabel": ("sklearn", "torchmetrics"),
    "loaders": ("sklearn",),
    "gpt": ("transformers",),
    "lora": ("transformers", "peft"),
    "sft": ("transformers", "peft", "trl"),
    "lightning_module": ("sklearn",),
}
METRICS = {
    "images": {"accuracy": 0.5},
    "regression": {"mae": 0.8, "mse": 1.0, "client_mae": 0.8, "client_worst_tenth": 1.0},
    "multilabel": {"f1": 0.5, "exact_match": 0.1},
    "loaders": {"accuracy": 0.4},
    "gpt": {"perplexity": 40.0},
    "lora": {"perplexity": 75.0},
    "sft": {"perplexity": 20.0},
    "lightning_module": {"accuracy": 0.5},
}
"""The metrics of each script, that by which it is judged first, and what a model without training does not reach."""
LOWER = ("regression", "gpt", "lora", "sft")
ALWAYS = {("loaders", "ray"), ("regression", "flower")}
"""What is run on another engine every time; the rest with `make slow`."""

pytestmark = pytest.mark.xdist_group("own")  # the runs are made once


def installed(name: str) -> bool:
    """Whether a script can run here: its packages, and for language models the text."""
    here = all(find_spec(package) is not None for package in NEEDS[name])
    return here and (name not in ("gpt", "lora") or any(x.name == "shakespeare" and x.available for x in available()))


def blocks(language: str) -> list[str]:
    """The code of README.md."""
    return re.findall(rf"```{language}\n(.*?)```", (OWN / "README.md").read_text(), flags=re.DOTALL)


@cache
def environment() -> dict[str, str]:
    """For processes of their own: this package, and a torchvision that can be imported by packages that do so."""
    return processes.environment(*shim_folders(), OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the images and the table that README.md writes."""
    home = tmp_path_factory.mktemp("own")
    if installed("images"):
        for code in blocks("python"):
            subprocess.run([sys.executable, "-c", code], cwd=home, timeout=120, check=True)
    return home


def wanted(items: Iterable[pytest.Item]) -> set[str]:
    """The scripts that the chosen tests of this file are about."""
    own = (item for item in items if item.path == Path(__file__))
    return {str(item.callspec.params["name"]) for item in own if hasattr(item, "callspec")}


@pytest.fixture(scope="module")
def runs(home: Path, request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What became of each script that a chosen test is about, by name; of one script if none is."""
    names = [name for name in NEEDS if name in wanted(request.session.items) and installed(name)] or ["regression"]
    command = [sys.executable, "-m", "support.own_runs", str(home), *names]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {outcome["script"]: outcome for outcome in map(json.loads, done.stdout.splitlines())}
    return {name: outcome | {"stderr": done.stderr[-3000:]} for name, outcome in found.items()}


@pytest.fixture
def run(runs: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """The same of one script."""
    if name not in runs:
        pytest.skip(f"{name}.py needs {', '.join(NEEDS[name])} and its data")
    return runs[name]


def test_the_scripts_are_short_and_listed() -> None:
    scripts = {path.stem: path.read_text() for path in OWN.glob("*.py")}
    assert set(scripts) == {*NEEDS, "command_line"}
    assert all(len(text.splitlines()) < 40 for text in scripts.values())
    assert all(f"| `{name}.py` |" in (OWN / "README.md").read_text() for name in NEEDS)


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("name", NEEDS)
def test_a_script_has_a_run_folder(name: str, run: dict[str, Any], home: Path) -> None:
    assert run["code"] == 0, run["stderr"]
    folder, goal = home / "whole" / name, next(iter(METRICS[name]))
    summary, rows = read_summary(folder), (folder / "metrics.jsonl").read_text().splitlines()
    assert summary is not None and len(rows) == 4
    assert summary["judged_by"] == goal or (goal == "accuracy" and "judged_by" not in summary)
    last = json.loads(rows[-1])
    for metric, bound in METRICS[name].items():
        assert last[metric] == summary[metric] and (last[metric] < bound) == (name in LOWER), (metric, last[metric])
    assert (home / "whole" / f"{name}.txt").read_text().startswith(summary["sha256"])
    assert {"config.toml", "task.json", "model.safetensors", "audit.jsonl"} <= {path.name for path in folder.iterdir()}


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("name", NEEDS)
def test_a_killed_script_goes_on_to_the_same_bits(name: str, run: dict[str, Any]) -> None:
    assert (run["killed"], run["rows"], run["again"]) == (-9, 2, 0), run["stderr"]
    whole, resumed = run["sha256"]
    assert whole == resumed != ""


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("name", ["lora"])
def test_the_adapter_is_loaded_back(run: dict[str, Any]) -> None:
    assert run["adapter"] == 0, run["stderr"]


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("name", ["lora"])
def test_only_adapters_travel(run: dict[str, Any], home: Path) -> None:
    assert run["code"] == 0, run["stderr"]
    row = json.loads((home / "whole" / "lora" / "metrics.jsonl").read_text().splitlines()[0])
    assert row["bytes_up"] == row["bytes_down"] == 4 * 4 * (read_summary(home / "whole" / "lora") or {})["parameters"]


def test_a_report_has_the_scripts(runs: dict[str, dict[str, Any]], home: Path) -> None:
    folders = [str(home / "whole" / name) for name in runs]
    done = CliRunner().invoke(app, ["report", *folders, "--out", str(home / "report.html")])
    assert done.exit_code == 0, done.output
    page = (home / "report.html").read_text()
    assert all(name in page for name in runs)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("name", ["regression"])
def test_a_task_by_name(run: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(OWN)
    out = home / "by-name"
    words = ["run", "fedprox", "--task", "regression:task", "--cohort", "4", "--rounds", "2", "--out", str(out)]
    done = CliRunner().invoke(app, [*words, "--set", "local.lr=0.05", "--set", "local.batch_size=10"])
    assert done.exit_code == 0, done.output
    assert "mae" in done.output
    done = CliRunner().invoke(app, ["resume", str(out), "--rounds", "4"])
    assert done.exit_code == 0, done.output
    assert (read_summary(out) or {})["sha256"] == run["sha256"][0] != ""


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize(
    ("name", "engine"),
    [
        pytest.param(name, engine, marks=() if (name, engine) in ALWAYS else pytest.mark.slow)
        for name in NEEDS
        for engine in ("ray", "flower")
    ],
)
def test_one_hash_on_every_engine(name: str, engine: str, run: dict[str, Any], home: Path) -> None:
    pytest.importorskip({"ray": "ray", "flower": "flwr"}[engine])
    command = [sys.executable, str(OWN / f"{name}.py"), f"{engine}/{name}", "--engine", engine]
    done = subprocess.run(
        command, cwd=home, env=environment(), capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[0] == run["sha256"][0]


@pytest.mark.sweep(every=8)
def test_two_of_them_from_the_command_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last commands of README.md; runs of them on Ray, resumed or repeated give the same bits."""
    if not installed("images"):
        pytest.skip("pillow and scikit-learn are not installed")
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(OWN))
    (home / "compare.toml").write_text(blocks("toml")[-1])
    commands = [shlex.split(line)[1:] for line in blocks("bash")[-1].splitlines()]
    assert [command[0] for command in commands] == ["run", "run", "compare"]
    for command, metric in zip(commands[:2], ("accuracy", "mse"), strict=True):
        whole, part = f"{metric}-whole", f"{metric}-part"
        for arguments in (
            [*command, "--out", whole],
            [*command[:-1], "2", "--out", part],
            ["resume", part, "--rounds", "4"],
        ):
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, done.output
        first, second = read_summary(home / whole), read_summary(home / part)
        assert first is not None and second is not None and first["sha256"] == second["sha256"] and metric in first
    done = CliRunner().invoke(app, [*commands[2], "--out", "compared"])
    assert done.exit_code == 0 and "scaffold" in done.stdout, done.output
