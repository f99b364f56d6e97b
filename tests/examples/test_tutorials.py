"""The tutorials run, and their stored outputs are those of their code."""

import base64
import os
import re
import shutil
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from support.vision import shim_folders

pytest.importorskip("ipykernel")
pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "guide" / "tutorials"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
SLOW = {"08-deploy-three-nodes.ipynb"}
NEEDS = {
    "04-flower-app.ipynb": ("flwr", "ray"),
    "08-deploy-three-nodes.ipynb": ("flwr",),
    "13-language-model.ipynb": ("transformers", "datasets", "peft"),
}
SERVERS = ("openssl", "ssh-keygen", "nginx")
LARGEST = 60_000
"""Bytes of a picture."""


def read(name: str) -> Any:
    return nbformat.read(FOLDER / name, as_version=4)


@pytest.fixture
def execute() -> Any:
    """The script of `make tutorials`."""
    spec = spec_from_file_location("execute_tutorials", FOLDER / "execute.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(notebook: Any) -> list[list[str]]:
    """What each cell shows, without numbers, which another processor may round another way, and pictures."""
    return [[_shape(output) for output in cell.get("outputs", ())] for cell in notebook.cells]


def _shape(output: Any) -> str:
    if "image/png" in output.get("data", {}):
        return "a picture"
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    text = re.sub(r"[-+]?\d[\d.,e%]*", "#", re.sub(r"\b[0-9a-f]{64}\b", "#", text))
    return re.sub(r"#( #)+", "#", " ".join(text.split()))  # a grid that is widened further has more rows


@pytest.mark.sweep(every=14)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in NOTEBOOKS]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:.*:RuntimeWarning")
def test_a_tutorial_runs(name: str, execute: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not all(find_spec(package) for package in NEEDS.get(name, ())):
        pytest.skip(f"needs {', '.join(NEEDS[name])}")
    if name in SLOW and not all(shutil.which(command, path="/usr/sbin:/usr/bin:/bin") for command in SERVERS):
        pytest.skip(f"needs {', '.join(SERVERS)}")
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    if "transformers" in NEEDS.get(name, ()):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*map(str, shim_folders()), os.environ.get("PYTHONPATH", "")]))
    stored = read(name)
    (tmp_path / "work").mkdir()
    assert texts(execute.execute(stored, tmp_path / "work")) == texts(stored), "make tutorials writes the new outputs"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_is_stored_clean(name: str, execute: Any) -> None:
    stored = read(name)
    assert 5 <= len(stored.cells) <= 12
    assert "**Goal:**" in stored.cells[0].source and "## What next" in stored.cells[-1].source
    assert execute.clean(read(name)) == stored
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "execute all cells in their order"
    text = (FOLDER / name).read_text()
    assert not re.search(r"/(tmp|home|root|Users)/", text) and '"stderr"' not in text
    for cell in code:
        for output in cell.outputs:
            assert len(base64.b64decode(output.get("data", {}).get("image/png", ""))) < LARGEST


def test_outputs_are_cleaned(execute: Any) -> None:
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    outputs = [
        new_output("stream", name="stderr", text="a warning\n"),
        new_output("stream", name="stdout", text="one\n"),
        new_output("stream", name="stdout", text="two\n"),
        new_output("display_data", {"text/plain": "<Thing at 0x7f00>"}, metadata={"needs": "nothing"}),
    ]
    cell = execute.clean(new_notebook(cells=[new_code_cell("1", outputs=outputs, metadata={"time": "now"})])).cells[0]
    assert (cell.id, cell.metadata) == ("cell-01", {})
    assert [output.get("text") or output.data for output in cell.outputs] == ["one\ntwo\n", {"text/plain": "<Thing>"}]
    assert cell.outputs[1].metadata == {}


def test_the_index_lists_every_tutorial() -> None:
    index = (FOLDER / "index.md").read_text()
    assert re.findall(r"\((\d\d-[\w-]+\.ipynb)\)", index) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_of_tutorials_lead_somewhere(name: str) -> None:
    for cell in read(name).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#]+)", cell.source):
                assert "://" in target or (FOLDER / target).exists(), target
