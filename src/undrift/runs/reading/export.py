"""A run's model for other programs: a folder with all that is needed to use it, or one file."""

import logging
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save
from torch import Generator, nn

from undrift.core.tasks.task import Task
from undrift.data.arrays.preprocess import Inputs
from undrift.runs.reading.best_round import Round
from undrift.runs.reading.loaded_model import Program
from undrift.runs.reading.model_folder import write_folder
from undrift.runs.reading.pretrained import write_pretrained
from undrift.runs.reading.saved_run import SavedRun, load_run
from undrift.runs.setup.prepare import prepare
from undrift.util.steps import warn
from undrift.util.storage.files import replacing, write

Format = Literal["folder", "safetensors", "torch", "onnx", "adapter", "merged"]

_ENDINGS: dict[str, Format] = {
    "": "folder",
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".onnx": "onnx",
}


def export(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    format: Format | None = None,
    client: int | None = None,
    round: Round | None = None,
    task: Task | None = None,
) -> Path:
    """Write a model of a run to a folder or a file, and return its path; existing files are replaced.

    A folder has the weights, preprocess.json, a program and a script for plain PyTorch, and a model card. Tensors have
    the names of the plain module. An ONNX graph takes batches of any size and has the model in its evaluation mode,
    from bytes or rows to probabilities or numbers: its preprocessing is inside, if PyTorch can export that.

    Args:
        folder: the run's folder.
        out: the folder or file; None takes "model" with the ending of the format, in the working folder.
        format: "folder", "safetensors", "torch" (a state dict of torch.save), "onnx", "adapter" (a folder for
            `PeftModel.from_pretrained`) or "merged" (one for `from_pretrained` of transformers, with an adapter merged
            into the model); None follows the extension of `out`, and is a folder without one.
        client: the number of a client, for its personal model; None takes the global model.
        round: after how many rounds, or "best", as `SavedRun.weights` takes it; None takes the last.
        task: the run's task, if it was made in Python; None builds what the settings describe.
    """
    if format is None:
        format = _ENDINGS.get("" if out is None else Path(out).suffix)
    if format not in get_args(Format):
        raise ValueError(f"export: the format must be {', '.join(get_args(Format))}; got {format or str(out)!r}")
    ending = next((ending for ending, name in _ENDINGS.items() if name == format), "")
    path, run = Path(f"model{ending}") if out is None else Path(out), load_run(folder)
    if not path.parent.is_dir():
        raise ValueError(f"export: the folder {path.parent} does not exist; create it first")
    run.warn_of_global(client)
    if format == "onnx":
        _check_onnx()
        _write_graph(run, run.model(task, client=client, round=round), path, task)
        return path
    if format in ("adapter", "merged"):
        module = run.model(task, client=client, round=round)
        return write_pretrained(run, module, path, merged=format == "merged", client=client, round=round)
    weights = run.weights(task, client=client, round=round)
    if format == "folder":
        known = run.model(client=client, round=round) if run.preprocess is not None else None
        return write_folder(run, weights, known, path, client=client, round=round)
    if format == "safetensors":
        write(path, save(weights), mode=0o644)
    else:
        with replacing(path) as temporary:
            torch.save(weights, temporary)
    return path


def _write_graph(run: SavedRun, module: nn.Module, path: Path, task: Task | None) -> None:
    """Write an ONNX graph, with the preprocessing inside if it is known and can be exported."""
    made = run.preprocess if task is None else None
    if made is None:
        write_onnx(module, _batch(prepare(run.config, folder=run.folder).task if task is None else task), path)
        return
    try:
        write_onnx(Program(module, made), made.example, path)
    except ValueError:
        write_onnx(module, Inputs(made)(made.example), path)
        warn("%s: its preprocessing cannot be written as ONNX: give it inputs as preprocess.json describes them", path)


def write_onnx(module: nn.Module, batch: Any, path: Path) -> None:
    """Write a model as an ONNX graph that takes batches of any size.

    Args:
        module: the model.
        batch: a batch of two examples or more: (inputs, targets), inputs alone, or named inputs, without "labels".
        path: the file.
    """
    _check_onnx()
    named = {key: x for key, x in batch.items() if key != "labels"} if isinstance(batch, Mapping) else {}
    first = () if named else (batch[0] if isinstance(batch, tuple | list) else batch,)
    free = {0: torch.export.Dim.DYNAMIC}
    level = logging.getLogger("torch.onnx").level
    try:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings(), redirect_stdout(StringIO()), replacing(path) as temporary:
            warnings.simplefilter("ignore")  # of torch about its own exporter
            torch.onnx.export(
                module.eval(),
                first,
                str(temporary),
                kwargs=named or None,
                input_names=list(named) or ["input"],
                output_names=["output"],
                dynamic_shapes=dict.fromkeys(named, free) or (free,),
                external_data=False,
                verbose=False,
                dynamo=True,
            )
    except Exception as error:  # the exporter raises many kinds
        reason = str(error).strip().partition("\n")[0]
        name = type(module).__name__
        raise ValueError(f"export: {name} cannot be written as ONNX: {reason}; use --format safetensors") from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _check_onnx() -> None:
    """Raise if the packages for ONNX are missing."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise ImportError("export: ONNX needs two packages: pip install 'undrift[onnx]'")


def _batch(task: Task) -> Any:
    """Two examples of the client that has most."""
    client = max(range(task.population), key=task.examples)
    return next(iter(task.batches(client, 2, Generator().manual_seed(0))))
