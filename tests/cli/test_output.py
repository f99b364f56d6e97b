"""Output that cannot be encoded or written."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from undrift.cli.app import report_errors

PRINTS = """
from undrift.cli import app
from undrift.cli.tables import open_console

@app.command("signs")
def signs() -> None:
    open_console().print("82.1 \\u00b1 0.4")

app(["signs"])
"""
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.mark.sweep(every=4)
def test_signs_that_cannot_be_encoded_are_replaced() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-c", PRINTS]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "82.1 ? 0.4\n" and not done.stderr


@FULL
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("word", ["list", "--version"])
def test_a_full_disk_below_standard_output_is_one_line(word: str, unbuffered: str) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "undrift", word]
        done = subprocess.run(
            command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    line = (
        "undrift: standard output: cannot be written: No space left on device; free some space on that disk, then run "
        "the command again"
    )
    assert done.returncode == 2 and done.stderr.splitlines() == [line]


def test_a_reader_that_leaves_gets_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "undrift", "--version"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writer)
    assert done.returncode == 1 and not done.stderr


@FULL
def test_errors_of_printing_are_not_those_of_a_command() -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115  closing it fails as well
    with pytest.raises(OSError, match="No space left"), report_errors("demo"):
        typer.echo("a line", file=full)
    with suppress(OSError):
        full.close()
    with pytest.raises(typer.Exit), report_errors("demo"):
        raise OSError(errno.ENOSPC, "No space left on device")
