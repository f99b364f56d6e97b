"""A notebook in a real kernel: the outputs are tables and one bar, not hundreds of lines."""

from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures

pytest.importorskip("ipykernel")
nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")

CELLS = (
    "from undrift import Simulation, load_run, make\nfrom undrift.testing import blobs\nmake('scaffold + sam(0.05)')",
    "simulation = Simulation('scaffold', blobs())\n"
    "state = simulation.run(60, progress=True, evaluate=lambda model: 0.5)\nsimulation",
    "simulation.history",
    f"from pathlib import Path\nfrom undrift.runs import Config, start\nstart(Config.build({RUN!r}), Path('run'))",
    "run = load_run('run')\nrun.history.plot()\nrun",
)


@pytest.mark.sweep(every=0)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:.*:RuntimeWarning")
@pytest.mark.usefixtures("tiny")
def test_five_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    algorithm, trained, history, outcome, saved = (cell["outputs"] for cell in notebook.cells)
    assert "SAM(rho=0.05" in html(algorithm)
    assert '<progress value="60" max="60">' in html(trained) and len(trained) == 2  # the bar and the last value
    assert text(trained[-1]).startswith("Simulation(Algorithm(") and "60 rounds done" in text(trained[-1])
    assert "the last 10 of 60 rounds" in html(history) and len(history) == 1
    for shown in (outcome, saved):
        assert "fashion-mnist" in html(shown) and "2 of 2" in html(shown)
    assert any("image/png" in output.get("data", {}) for output in saved)


def html(outputs: list[Any]) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs)


def text(output: Any) -> str:
    return str(output["data"]["text/plain"])
