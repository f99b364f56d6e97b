"""Plug-ins on the command line; the package in examples/plugin is installed and used on every engine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.own import MODULE, own_code_fixture, plugged_fixture  # noqa: F401
from undrift.cli import app, names
from undrift.cli.plugins import by_package, survey

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
RUN = ("--data", "stripes", "--clients", "6", "--cohort", "3", "--rounds", "2", "--batch-size", "20")


@pytest.mark.quick
def test_working_and_broken_plug_ins_are_told_apart(plugged: Path) -> None:
    found = survey()
    assert by_package(found.working) == {"theirs": "methods: fedpull; blocks: shrink; models: their-net; data: nothing"}
    assert [problem.split(";")[0] for problem in found.problems] == [
        "plug-in 'FedAvg' of theirs: undrift itself has this name",
        "plug-in 'gone' of theirs: their_missing:Block: no module is named 'their_missing'",
        "plug-in 'cnn' of theirs: undrift itself has this name",
        "plug-in 'thing' of theirs: ValueError: model 'thing': it must be a class derived from nn.Module or a function "
        "that returns a module, so that every client starts with the same weights, got int",
        "plug-in 'numbers' of theirs: it must be a DataSource or a function that returns a Dataset, got 3",
    ]


def test_list_doctor_show_and_names(plugged: Path) -> None:
    shown = CliRunner().invoke(app, ["list", "--family", "drift"])
    assert " fedpull " in shown.stdout and "theirs adds methods: fedpull; blocks: shrink" in shown.stdout
    assert shown.stderr.count("problem: plug-in") == 5 == shown.stderr.count("\n")
    rows = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [row["name"] for row in rows if "package" in row] == ["fedpull"]
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert list(found["plugins"]) == ["theirs"] and sum("plug-in" in problem for problem in found["problems"]) == 5
    assert "From the package theirs" in CliRunner().invoke(app, ["show", "fedpull"]).stdout.replace("`", "")
    assert "fedpull" in names.methods() and "their-net" in names.models() and "nothing" in names.data_sets()


@pytest.mark.sweep(every=4)
def test_doctor_names_the_variable_without_which_flower_ends_with_608(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    for value, notes in (("0", 1), ("1", 0)):
        monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", value)
        found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
        assert sum("608" in note for note in found["notes"]) == notes


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("drift:gone",), "plug-in 'gone' of theirs: their_missing:Block: no module is named 'their_missing'"),
        (("fedavg", "--model", "thing"), "model 'thing': it must be a class derived from nn.Module"),
        (("fedavg", "--data", "numbers"), "plug-in 'numbers' of theirs: it must be a DataSource or a function"),
        (("fedavg", "--data", "nothing"), "nothing: the plug-in must return a Dataset, got 'no module'"),
    ],
)
def test_a_broken_plug_in_is_refused_when_it_is_used(plugged: Path, arguments: tuple[str, ...], answer: str) -> None:
    shown = CliRunner().invoke(app, ["run", *arguments])
    assert shown.exit_code == 2 and answer in shown.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example is installed, beside a module of one's own in a working folder."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")  # a build writes into its folder
    words = ["install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", folder / "site", source]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    (folder / "work").mkdir()
    (folder / "work" / "their_parts.py").write_text(MODULE)
    return folder


def call(installed: Path, *arguments: str) -> str:
    """A command in a new process, with the example installed; the working folder is not on Python's path."""
    path = os.pathsep.join([str(installed / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-P", "-W", "ignore", "-m", *arguments]
    place: dict[str, Any] = {"cwd": installed / "work", "env": {**os.environ, "PYTHONPATH": path}}
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, **place)
    assert done.returncode == 0, done.stderr
    out: str = done.stdout
    return out


@pytest.mark.sweep(every=0)
def test_the_example_is_listed_shown_and_keeps_the_contract(installed: Path) -> None:
    listed = call(installed, "undrift", "list", "--family", "drift")
    assert " fedmemory " in listed
    assert "undrift-example adds methods: fedmemory; blocks: memory; models: stripes-net; data: stripes" in listed
    assert "# fedmemory" in call(installed, "undrift", "show", "fedmemory", "--markdown")
    call(installed, "pytest", "-q", "-p", "no:cacheprovider", str(installed / "source" / "tests"))
    call(installed, "undrift.compose.cards", "cards", "--package", "undrift-example")
    assert (installed / "work" / "cards" / "fedmemory.md").is_file()


@pytest.mark.sweep(every=4)
def test_the_example_trains_with_its_own_model(installed: Path) -> None:
    words = (*RUN, "--model", "stripes-net(width=32)", "--set", "mu=0.1", "--out", "example", "--json")
    found = json.loads(call(installed, "undrift", "run", "fedmemory", *words))
    assert found["accuracy"] > 0.6
    recorded = json.loads((installed / "work" / "example" / "references.json").read_text())
    assert {one["setting"] for one in recorded} == {"method", "model", "data"}


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_one_hash_on_every_engine(installed: Path) -> None:
    """The plug-in's method and data, with a block and a model by reference from the working folder."""
    pytest.importorskip("ray")
    pytest.importorskip("flwr")
    method, model = "fedmemory(0.1) + their_parts:Shrink(0.9)", "their_parts:Net(width=8)"
    hashes = {}
    for engine in ("local", "ray", "flower"):
        words = (*RUN, "--model", model, "--engine", engine, "--out", f"on-{engine}", "--json")
        hashes[engine] = json.loads(call(installed, "undrift", "run", method, *words))["sha256"]
    assert len(set(hashes.values())) == 1, hashes
