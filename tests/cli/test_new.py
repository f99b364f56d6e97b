"""`undrift new`: the app in the package's template, which the tests of a deployment start."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from undrift.cli import app

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "src" / "undrift" / "templates" / "deployment"


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def new(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["new", *map(str, arguments)])


def test_the_app_is_the_template_file_by_file(tmp_path: Path) -> None:
    result = new(tmp_path / "here", "--name", "undrift-deployment")
    assert result.exit_code == 0, result.output
    assert {f"{name}.in": content for name, content in contents(tmp_path / "here").items()} == contents(TEMPLATE)


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=" ".join)
def test_its_code_passes_the_checks_of_this_project(words: list[str], tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    new(tmp_path / "app")
    command: list[Any] = [ruff, *words, "--no-cache", "--config", ROOT / "pyproject.toml", tmp_path / "app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_of_the_template_ends_so_that_no_tool_takes_it_for_code() -> None:
    assert all(name.endswith(".in") for name in contents(TEMPLATE))


def test_the_app_is_named_after_its_folder(tmp_path: Path) -> None:
    result = new(tmp_path / "deep" / "my-app")
    assert result.exit_code == 0 and "Next: cd" in result.stdout
    assert "export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in result.stdout and "code 608" in result.stdout
    project = tomllib.loads((tmp_path / "deep" / "my-app" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "my-app"
    for name in contents(tmp_path / "deep" / "my-app"):
        assert str(tmp_path / "deep" / "my-app" / name) in result.stdout
    for path in (tmp_path / "deep" / "my-app").rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


@pytest.mark.quick
def test_an_empty_folder_is_filled_and_this_one_may_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert new(".").exit_code == 0
    assert 'name = "mine"' in (tmp_path / "mine" / "pyproject.toml").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("mine")
    result = new(tmp_path, "--name", "x")
    assert result.exit_code == 2
    assert "is not empty: name a new folder, or move the contents of this one" in result.stderr
    assert contents(tmp_path) == {"pyproject.toml": b"mine"}
    result = new(tmp_path / "pyproject.toml", "--name", "x")
    assert result.exit_code == 2 and "File exists" in result.stderr
    assert new(tmp_path / "pyproject.toml" / "x").exit_code == 2


@pytest.mark.parametrize("name", ["", "-x", "a b", 'a"\nb', "é", "x."])
def test_a_name_that_cannot_be_one(name: str, tmp_path: Path) -> None:
    result = new(tmp_path / "x", f"--name={name}")
    assert result.exit_code == 2 and "cannot be an app's name: set --name, of letters" in result.stderr
    assert not (tmp_path / "x").exists()


def test_a_folder_whose_name_cannot_be_the_apps(tmp_path: Path) -> None:
    result = new(tmp_path / "my app")
    assert result.exit_code == 2 and "set --name" in result.stderr
    assert new(tmp_path / "my app", "--name", "my-app").exit_code == 0


def test_help_has_an_example() -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["new", "--help"])
    assert "FOLDER must be new or empty" in result.stdout and "Example: undrift new my-app" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_flower_takes_the_app(tmp_path: Path) -> None:
    flwr = Path(sys.executable).parent / "flwr"
    if not flwr.exists():
        pytest.skip("flwr is not installed")
    new(tmp_path / "my-app")
    words: list[Any] = [flwr, "build", "--app", tmp_path / "my-app"]
    off = {"FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=off, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("*my-app*.fab"))
