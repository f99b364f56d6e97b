"""The command line answers at once: help, completion and refused arguments need nothing slow."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from inspect import signature

import pytest
from typer.testing import CliRunner

import undrift
from undrift.algorithms import ALGORITHMS
from undrift.cli import app, names
from undrift.cli.choosing import installed as machine
from undrift.cli.options import EngineOptions, TrainingOptions, expand_options
from undrift.compose.stored import FAMILIES
from undrift.data import SOURCES
from undrift.data.partitions.draw import parse
from undrift.models import MODELS
from undrift.runs import Config

HEAVY = ("torch", "numpy", "scipy", "pyarrow", "pydantic", "ray", "flwr", "matplotlib", "plotly", "datasets")
ASK = f"""
import sys
try:
    from undrift.cli import app
    app(sys.argv[1:], prog_name="undrift")
finally:
    print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)
"""
COMMANDS = sorted(command.name or command.callback.__name__ for command in app.registered_commands)  # type: ignore[union-attr]


def ask(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, which names the heavy modules it imported at the end of stderr."""
    words = [sys.executable, "-c", ASK, *arguments]
    return subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        *(pytest.param([command, "--help"], 0, id=command) for command in COMMANDS),
        (["--help"], 0),
        (["-h"], 0),
        (["--version"], 0),
        (["nosuch"], 2),
        (["run", "--nosuch"], 2),
        (["run", "--lr", "abc"], 2),
        (["run", "fedavgg"], 2),
        (["run", "fedavg", "--data", "mnist"], 2),
        (["run", "fedavg", "--model", "cn"], 2),
        (["tune", "fedavgg"], 2),
        (["show", "fedsamm"], 2),
        (["show", "scaffold"], 0),
        (["list"], 0),
        (["paper", "list"], 0),
        (["list", "--costs", "--personal"], 0),
        (["partition", "--data", "mnist"], 2),
        (["resume"], 2),
        ([], 2),
    ],
)
def test_nothing_slow_is_imported(arguments: list[str], code: int) -> None:
    done = ask(*arguments)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("undrift ru", {"run"}),
        ("undrift run fedf", {name for name in ALGORITHMS if name.startswith("fedf")}),
        ("undrift run fedavg --data fash", {"fashion-mnist"}),
        ("undrift run fedavg --model resnet1", {name for name in MODELS if name.startswith("resnet1")}),
        ("undrift list --family s", {"sharpness", "spectral", "server"}),
    ],
)
def test_completion(line: str, expected: set[str]) -> None:
    done = ask(_UNDRIFT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    assert set(done.stdout.split()) == expected
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_script_for_the_shell() -> None:
    shown = CliRunner(env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}).invoke(app, ["--help"]).stdout
    assert "--install-completion" in shown and "--show-completion" in shown


@pytest.mark.quick
def test_the_names_are_those_of_the_registries() -> None:
    assert names.methods() == sorted(ALGORITHMS)
    assert (
        tuple(SOURCES) == names.DATA and tuple(MODELS) == names.MODELS and tuple(Config.model_fields) == names.SETTINGS
    )
    for partition in names.PARTITIONS:
        parse(partition)


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"undrift {undrift.__version__}\n"
    assert version("undrift") == undrift.__version__
    run = subprocess.run([sys.executable, "-m", "undrift", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"undrift {undrift.__version__}\n"


@pytest.mark.quick
def test_the_face_is_lazy_and_complete() -> None:
    listed = [name for place in undrift._PLACES.values() for name in place]
    assert sorted(listed) == sorted(undrift.__all__)
    assert set(undrift.__all__) <= set(dir(undrift))
    assert undrift.data.SOURCES is SOURCES  # a module of the package, imported when it is asked for
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        undrift.nosuch  # noqa: B018
    done = subprocess.run([sys.executable, "-c", "from undrift import nosuch"], capture_output=True, text=True)
    assert "ImportError: cannot import name 'nosuch' from 'undrift'" in done.stderr


@pytest.mark.sweep(every=4)
def test_a_simulation_starts_without_scipy() -> None:
    code = "import sys, undrift; undrift.Simulation; print(sorted({'scipy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120).stdout == "[]\n"


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("arguments", [["list"], ["doctor"], ["paper", "list", "--scale", "small"]])
def test_tables_in_a_pipe_are_as_wide_as_they_need(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    shown = CliRunner().invoke(app, arguments).stdout
    assert "…" not in shown and max(map(len, shown.splitlines())) > 80
    if arguments == ["list"]:
        assert len(shown.splitlines()) == 1 + len(FAMILIES) + len(ALGORITHMS) + 1  # no row is wrapped


def test_a_card_in_a_pipe_is_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert (
        CliRunner().invoke(app, ["show", "fedsam"]).stdout
        == CliRunner().invoke(app, ["show", "fedsam", "--markdown"]).stdout
    )


def test_doctor_in_json() -> None:
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert found["undrift"] == undrift.__version__ and "local" in found["engines"]
    assert {item["name"] for item in found["data"]} == set(SOURCES)


@pytest.mark.parametrize(
    ("code", "error", "problem"),
    [
        (0, "", None),
        (
            1,
            "Traceback ...\nRuntimeError: operator torchvision::nms does not exist\n",
            "torchvision 1.2 does not fit torch 2.13.0+cpu (RuntimeError: operator torchvision::nms does not exist); "
            "densenet121 and vit-tiny need it. Install both from one place: pip install --force-reinstall --no-deps "
            "torch==2.13.0 torchvision --index-url https://download.pytorch.org/whl/cpu",
        ),
        (-11, "", "torchvision 1.2 does not fit torch 2.13.0+cpu (its import ended with code -11); "),
    ],
)
def test_doctor_tries_torchvision(code: int, error: str, problem: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_version", lambda package: "1.2")
    done = subprocess.CompletedProcess([], code, "", error)
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: done)
    found = machine._torchvision("2.13.0+cpu")
    assert found == problem if problem is None else found is not None and found.startswith(problem)


def test_a_release_of_torch_without_a_build() -> None:
    assert machine._fitting("2.13.0") == "pip install --force-reinstall --no-deps torch==2.13.0 torchvision"


@pytest.mark.quick
def test_a_dataclass_of_options_stands_for_its_fields() -> None:
    def train(method: str, *, place: TrainingOptions, rounds: int = 3) -> tuple[str, TrainingOptions, int]:
        return method, place, rounds

    shown = expand_options(train)
    assert list(signature(shown).parameters) == [
        *("method", "engine", "workers", "device", "gpus", "deterministic"),
        "rounds",
    ]
    given = {"engine": "ray", "workers": "4", "device": None, "gpus": None, "deterministic": True}
    place = TrainingOptions("ray", "4", deterministic=True)
    assert shown(method="fedavg", rounds=5, **given) == ("fedavg", place, 5)
    assert place.settings() == {"name": "ray", "workers": 4, "device": None, "gpus": None, "deterministic": True}
    assert EngineOptions(workers="auto").settings() == {"name": None, "workers": "auto", "device": None}
    assert expand_options(ask) is ask
    with pytest.raises(ValueError, match="--workers 4: the local engine has one; add --engine ray"):
        place.check_workers("local", "local")
    place.check_workers("local", "ray")
