"""What is built and installed: no import opens a socket, two builds are equal, and a list of parts can be made."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from support.new_app import NEW_APP

ROOT = Path(__file__).parents[1]
WATCHED = """
import sys
seen = []
def hook(event, arguments):
    if event in {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname"}:
        seen.append((event, str(arguments[-1])))
sys.addaudithook(hook)
"""
PROBE = ("socket.bind", "('::1', 0)")
"""urllib3, which Ray and Flower import, looks in this way whether the machine has IPv6; nothing is sent."""
IMPORTS = """
import importlib, pkgutil, undrift
for found in pkgutil.walk_packages(undrift.__path__, "undrift."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError:
            pass  # an extra that is not installed
"""
COMMAND = """
import contextlib, io
from typer.testing import CliRunner
from undrift.cli import app
done = CliRunner().invoke(app, ["--help"])
assert done.exit_code == 0, done.output
"""
RUN = """
from undrift import Local, Simulation, make
from undrift.testing import Clinic
Simulation(make("scaffold"), Clinic(), Local(batch_size=4), cohort=3).run(1)
"""


def python(code: str, folder: Path) -> str:
    """The output of Python code in a process of its own."""
    seen = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=seen, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("code", [IMPORTS, COMMAND, RUN], ids=["imports", "help", "run"])
def test_no_socket_is_opened(code: str, tmp_path: Path) -> None:
    out = python(f"{WATCHED}{code}\nprint('seen', [x for x in seen if x != {PROBE}])", tmp_path)
    assert out.splitlines()[-1] == "seen []", out


@pytest.mark.sweep(every=4)
def test_the_flower_app_is_built_twice_with_one_hash(tmp_path: Path) -> None:
    flwr = Path(sys.executable).parent / "flwr"
    if not flwr.exists():
        pytest.skip("flwr is not installed")
    hashes = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        words = [str(flwr), "build", "--app", str(NEW_APP)]
        seen = {**os.environ, "FLWR_HOME": str(tmp_path / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"}
        done = subprocess.run(words, cwd=folder, env=seen, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        (built,) = folder.glob("*.fab")
        hashes.append(sha256(built.read_bytes()).hexdigest())
    assert hashes[0] == hashes[1]


@pytest.mark.sweep(every=4)
def test_the_list_of_parts_names_every_dependency() -> None:
    pytest.importorskip("packaging")
    spec = importlib.util.spec_from_file_location("forge_sbom", ROOT / ".github" / "sbom.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.bom(frozenset())
    assert found == module.bom(frozenset()) and json.loads(json.dumps(found)) == found
    names = {part["name"] for part in found["components"]}
    assert {"torch", "click", "numpy", "pydantic", "safetensors", "typing-extensions"} <= names
    pytest.importorskip("flwr")
    names = {part["name"] for part in module.bom(frozenset({"flower", "ray"}))["components"]}
    assert {"flwr", "ray", "cryptography", "torch"} <= names and len(names) > 40
    refs = {part["bom-ref"] for part in [*found["components"], found["metadata"]["component"]]}
    assert {entry["ref"] for entry in found["dependencies"]} == refs


def test_tools_of_a_release_are_locked_with_hashes() -> None:
    text = (ROOT / ".github" / "build.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert {"build", "hatchling", "twine"} <= {line.partition("==")[0] for line in lines}
    for line in lines:
        assert re.match(r"[a-z0-9-]+==\S+\s.*--hash=sha256:[0-9a-f]{64}", line), line


def test_images_and_archives_have_what_they_must() -> None:
    """Images have constraints and a base that can be given by digest; the sdist has the security policy."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "/.github/SECURITY.md" in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert not any("simulation" in need for need in settings["project"]["optional-dependencies"]["flower"])
    for folder, file in ((ROOT / "packaging", "Dockerfile"), (NEW_APP / "ops", "Dockerfile")):
        text = (folder / file).read_text()
        assert (
            "ARG BASE=python:" in text and "FROM ${BASE}" in text and "@sha256:" in text and "FROM python" not in text
        )
        assert "pip install" in text and "constraints.txt" in text
    pins = [line for line in (NEW_APP / "ops" / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    assert pins and set(pins) <= set((ROOT / "packaging" / "constraints.txt").read_text().splitlines())
