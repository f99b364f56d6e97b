"""Suggested commands can be pasted into a shell."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from undrift.cli import app
from undrift.cli.results.health import health
from undrift.report.loaded import from_here
from undrift.runs.folder.files import RunError, RunFolder, check_free, read_summary
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.util.shell import as_argument
from undrift.util.storage.files import StorageError

NAMES = {"a b/x": "'a b/x'", "-weird": "./-weird", "it's": """'it'"'"'s'""", "runs/mine": "runs/mine"}


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "quoted"), NAMES.items())
def test_an_argument_is_the_path_again(name: str, quoted: str) -> None:
    assert as_argument(Path(name)) == quoted
    (word,) = shlex.split(as_argument(Path(name)))
    assert Path(word) == Path(name) and not word.startswith("-")
    assert Path(shlex.split(from_here(Path(name)))[0]) == Path(name)
    assert not from_here(Path(name)).startswith("-")


@pytest.mark.parametrize(("name", "quoted"), NAMES.items())
def test_messages_about_a_run(name: str, quoted: str) -> None:
    folder, command = Path(name), f"undrift resume {quoted}"
    with RunFolder.create(folder, Config(rounds=3)) as run:
        run.audit.write("begin", round=0)
    with pytest.raises(StorageError) as full, RunFolder.open(folder):
        raise StorageError(28, "No space left on device", "x")
    assert str(full.value).endswith(f"then resume with: {command}")
    with pytest.raises(RunError) as taken:
        check_free(folder)
    assert str(taken.value).endswith(f"or resume it with: {command}")
    assert health(folder).detail.endswith(f"to resume: {command}")
    (folder / "summary.json").write_text("{")
    with pytest.raises(ConfigError) as damaged:
        read_summary(folder)
    assert str(damaged.value).endswith(f"delete it and run: {command}")


def test_a_finished_run_is_continued_by_the_command_printed() -> None:
    words = ["--data", "digits", "--model", "mlp", "--clients", "4", "--cohort", "1", "--rounds", "1"]
    done = CliRunner().invoke(app, ["run", "fedavg", *words, "--engine", "local", "--out", "a b/x"])
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(app, ["resume", "a b/x"])
    assert "for more: undrift resume 'a b/x' --rounds 2" in again.stderr
