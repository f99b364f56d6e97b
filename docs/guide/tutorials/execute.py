"""Execute the tutorials in place: `make tutorials`, or `python docs/guide/tutorials/execute.py 02 05` for some of them.

A notebook is its own source: edit it in Jupyter, then run this. It executes every cell in a new kernel and an empty
folder, and writes the notebook back with stable cell ids and without anything of this machine: no times, no paths, no
versions. What did not change gives no difference.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
LONGEST = 600
"""Seconds that a cell may take."""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def execute(notebook: Any, folder: Path) -> Any:
    """The notebook with new outputs.

    Args:
        notebook: it is not changed.
        folder: an empty folder in which the cells run.
    """
    fresh = nbformat.from_dict(notebook)
    own = {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # where undrift is
    client = NotebookClient(fresh, timeout=LONGEST, kernel_name="python3", record_timing=False)
    client.execute(cwd=str(folder), env={**os.environ, **own, "PATH": path})
    return clean(fresh)


def clean(notebook: Any) -> Any:
    """The notebook as it is stored."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number:02}", nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [_clean_output(output) for output in _merged(cell.outputs)]
    return notebook


def _merged(outputs: Sequence[Any]) -> list[Any]:
    """The outputs without standard error, and what was printed in pieces in one piece."""
    out: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if output.output_type == "stream" and out and out[-1].output_type == "stream":
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def _clean_output(output: Any) -> Any:
    """An output without metadata, addresses of objects and colours of a terminal."""
    if "metadata" in output:
        output.metadata = nbformat.from_dict({})
    if "data" in output:
        for kind, content in output.data.items():
            if kind.startswith("text/"):
                output.data[kind] = re.sub(r" at 0x[0-9a-f]+", "", content)
    if "text" in output:
        output.text = re.sub(r"\x1b\[[0-9;]*m", "", output.text)
    return output


def main(chosen: Sequence[str]) -> None:
    """Execute the notebooks whose names begin with one of the given texts; none means all."""
    for path in sorted(HERE.glob("*.ipynb")):
        if chosen and not path.name.startswith(tuple(chosen)):
            continue
        with TemporaryDirectory() as folder:
            notebook = execute(nbformat.read(path, as_version=4), Path(folder))
        nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
