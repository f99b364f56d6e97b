"""The commands of examples/flower_app/README.md, word for word, in an environment that has only what they install."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.runs import write_tiny_fashion

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "examples" / "flower_app" / "README.md").read_text()
COMMANDS = "".join(re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL))
ROUNDS = 10  # of the app's pyproject.toml


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def mine(home: Path) -> list[int]:
    """The processes that have this FLWR_HOME: those that the commands started."""
    mark, found = f"FLWR_HOME={home}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Flower's folder; what runs with it is ended."""
    yield tmp_path / "flwr"
    for signal in (15, 9):
        for process in mine(tmp_path / "flwr"):
            try:
                os.kill(process, signal)
            except ProcessLookupError:
                continue
        time.sleep(3)


def test_the_readme_names_what_the_run_needs() -> None:
    assert "pip install '.[flower]' -c packaging/constraints.txt" in COMMANDS
    assert "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in COMMANDS and "exit code 608" in README
    assert f"num-rounds = {ROUNDS}" in (ROOT / "examples" / "flower_app" / "after" / "pyproject.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds its processes in /proc")
def test_the_commands_run(tmp_path: Path, home: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    write_tiny_fashion(tmp_path / "data" / "fashion-mnist", train=3000, test=500)
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "apt").write_text("#!/bin/sh\nexit 0\n")  # the data are in UNDRIFT_DATA instead, as the comment says
    (stubs / "apt").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or name == "HOME"}
    environment = {
        **kept,
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{stubs}:/usr/bin:/bin",
        "UNDRIFT_DATA": str(tmp_path / "data"),
        "FLWR_HOME": str(home),
        "RAY_worker_niceness": "0",  # or a busy machine starves the workers
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
        "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
    }
    done = subprocess.run(
        ["bash", "-euc", COMMANDS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = re.findall(r"^round (\d+): accuracy (\d\.\d+)", done.stdout, flags=re.MULTILINE)
    assert [int(round) for round, _ in rounds] == list(range(ROUNDS + 1)), done.stdout[-5000:]
    assert float(rounds[-1][1]) > float(rounds[0][1])
