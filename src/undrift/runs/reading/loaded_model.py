"""A trained model with its preprocessing: from new rows, images or texts to predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn

from undrift.core.model.modules import load_plain
from undrift.data.arrays import text
from undrift.data.arrays.dataset import DataError, errors_of
from undrift.data.arrays.images import decode, need
from undrift.data.arrays.preprocess import Inputs, Outputs, Preprocess
from undrift.data.files.folders import SUFFIXES as IMAGES
from undrift.data.own.rows import as_rows, is_missing
from undrift.data.own.tables import ARCHIVE, Columns, columns, read_tables, suffix
from undrift.models import build
from undrift.models.start import MODEL
from undrift.runs.folder.files import RunError, read_json, reading
from undrift.runs.folder.preprocess_file import read_preprocess
from undrift.runs.reading.best_round import Round
from undrift.runs.reading.saved_run import load_run
from undrift.util.steps import warn

CONFIG = "config.json"
"""The file of an export with the model's name, its arguments and the run that it is of."""

BATCH = 200

NO_COLUMNS = "keep names columns, and only a table has some; leave it out"


class Program(nn.Module):
    """A model between its preprocessing and what its outputs mean: from bytes or rows to probabilities or numbers.

    Args:
        module: the model.
        preprocess: of the data that it was trained on.
    """

    def __init__(self, module: nn.Module, preprocess: Preprocess) -> None:
        super().__init__()
        self.inputs, self.model, self.outputs = Inputs(preprocess), module, Outputs(preprocess)

    def forward(self, input: Tensor) -> Tensor:
        """A batch of examples, see `Inputs`."""
        found: Tensor = self.outputs(self.model(self.inputs(input)))
        return found


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A trained model with its preprocessing; `load_model` returns it.

    Args:
        module: the model, in evaluation mode.
        preprocess: what is done to an example before the model receives it.
    """

    module: nn.Module
    preprocess: Preprocess

    def __repr__(self) -> str:
        made, name = self.preprocess, type(self.module).__name__
        what = ", ".join(made.targets) if made.targets and made.kind == "table" else f"{made.outputs} outputs"
        return f"LoadedModel({name}: {made.kind} {list(made.shape)} -> {', '.join(made.labels[:10]) or what})"

    def predict(self, data: Any, keep: Sequence[str] = ()) -> dict[str, list[Any]]:
        """Predictions for new data, as columns: of classes "prediction" and "probability", or the targets' names.

        Args:
            data: the path of a table, of an image, of a folder with images or of a text file with an example in each
                line; a mapping of columns, or a table of pandas or Arrow; or an array of examples as `Inputs` takes
                them. A table needs the columns of training, in any order; others are ignored.
            keep: columns of the table that stand before the predictions, such as the number of a patient.

        Example:
            >>> load_model("runs/mine").predict({"age": [51], "sex": ["f"]})  # doctest: +SKIP
            {'prediction': ['no'], 'probability': [0.93]}
        """
        named, examples = self._examples(data, keep)
        found = self.outputs(examples)
        if self.preprocess.labels:
            top = found.max(1)
            labels = [self.preprocess.labels[place] for place in top.indices.tolist()]
            return {**named, "prediction": labels, "probability": top.values.tolist()}
        flat = found.reshape(len(found), -1).T.tolist()
        known = self.preprocess.targets
        names = known if len(known) == len(flat) else [f"output{place}" for place in range(len(flat))]
        return {**named, **dict(zip(names, flat, strict=True))}

    def outputs(self, examples: Tensor) -> Tensor:
        """The probability of every class, or the numbers in their own units, for examples as `Inputs` takes them."""
        with torch.inference_mode():
            parts = [self._program(part) for part in torch.split(examples, BATCH)]
        return torch.cat(parts) if parts else torch.empty(0, self.preprocess.outputs)

    @cached_property
    def _program(self) -> Program:
        return Program(self.module, self.preprocess).eval()

    def _examples(self, data: Any, keep: Sequence[str]) -> tuple[dict[str, list[Any]], Tensor]:
        """New data as `Inputs` takes them, and the names of examples that have some."""
        if isinstance(data, str | Path):
            return self._read(Path(data), keep)
        if keep and isinstance(data, Tensor | np.ndarray):
            raise DataError(NO_COLUMNS)
        if isinstance(data, Tensor | np.ndarray):
            found = torch.as_tensor(data)
            return {}, found.double() if self.preprocess.columns else found
        if not self.preprocess.columns:
            raise TypeError(f"predict: this model takes {self.preprocess.kind} data, got {type(data).__name__}")
        arrow = need("pyarrow")
        frame = hasattr(data, "iloc")
        table = (
            arrow.Table.from_pandas(data) if frame else arrow.table(dict(data)) if isinstance(data, Mapping) else data
        )
        given = columns(table)
        return _keep(given, keep), self._rows(given)

    def _read(self, path: Path, keep: Sequence[str]) -> tuple[dict[str, list[Any]], Tensor]:
        """The examples of a file or a folder."""
        if not path.exists():
            raise DataError(f"{path}: no such file or folder")
        if keep and not suffix(path):
            raise DataError(f"{path}: {NO_COLUMNS}")
        if self.preprocess.kind == "image":
            files = [path] if path.is_file() else sorted(x for x in path.rglob("*") if x.suffix.lower() in IMAGES)
            return {"file": [str(file) for file in files]}, torch.from_numpy(self._images(files, path))
        with errors_of(str(path)):
            if self.preprocess.kind == "text" and not suffix(path):
                lines = path.read_text(encoding="utf-8").splitlines()
                return {}, torch.from_numpy(self._tokens(lines).astype(np.int64))
            if suffix(path) in ("", ARCHIVE):
                raise DataError("a table is expected: .csv, .tsv, .parquet, .arrow or .feather; arrays in Python")
            found = read_tables([path])
            return _keep(found, keep), self._rows(found)

    def _rows(self, found: Columns) -> Tensor:
        """The rows of a table; raises if a number is missing that training did not fill, and warns of unknown texts."""
        wanted = self.preprocess.columns
        if not wanted:
            names = list(found)
            return torch.from_numpy(np.column_stack([np.asarray(found[name]) for name in names])).float()
        rows = as_rows(found, wanted)
        for place, one in enumerate(wanted):
            lost = np.flatnonzero(np.isnan(rows[:, place]))
            if not len(lost):
                continue
            if one.fill is None and not one.categories:
                raise DataError(
                    f"column {one.name!r} has no value in row {lost[0]}; fill it, or train with missing='mean' in data"
                )
            unknown = [row for row in lost if not is_missing(found[one.name])[row]]
            if unknown:
                new = sorted({str(found[one.name][row]) for row in unknown})
                warn("column %r: %d rows have texts that training did not have (%s)", one.name, len(unknown), new[0])
        return torch.from_numpy(rows)

    def _images(self, files: list[Path], source: Path) -> NDArray[np.uint8]:
        """Image files as bytes of the size of training."""
        channels, height, width = self.preprocess.shape
        if not files:
            raise DataError(f"{source}: there are no images ({', '.join(sorted(IMAGES))})")
        found = decode([{"path": str(file)} for file in files], channels, height if height == width else 0).images
        if found.shape[1:] != self.preprocess.shape:
            raise DataError(
                f"{source}: images must have {width} x {height} pixels, got {found.shape[3]} x {found.shape[2]}"
            )
        return found

    def _tokens(self, lines: list[str]) -> NDArray[Any]:
        """Lines of text as tokens."""
        length, coding = self.preprocess.shape[0], self.preprocess.encoding
        if coding == "words":
            return text.words(([line] for line in lines), len(lines), self.preprocess.symbols, length)
        if coding != "characters":
            raise DataError("this model was trained on tokens; give them as an array")
        short = next((number for number, line in enumerate(lines) if len(line) < length), None)
        if short is not None:
            raise DataError(f"line {short + 1} has {len(lines[short])} characters; the model reads the last {length}")
        return np.stack([text.encode(line[-length:]) for line in lines])


def _keep(found: Columns, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of a table by name, as lists."""
    for name in names:
        if name not in found:
            raise DataError(f"no column is named {name!r} to be kept; the table has {', '.join(found)}")
    return {name: np.asarray(found[name]).tolist() for name in names}


def load_model(folder: str | Path, *, client: int | None = None, round: Round | None = None) -> LoadedModel:
    """The model of a run, or of a folder that `undrift export` has written, ready for new data.

    Args:
        folder: of either.
        client: the number of a client, for its personal model; None takes the global model. Only of a run.
        round: after how many rounds, or "best"; None takes the last. Only of a run.
    """
    path = Path(folder)
    if not (path / CONFIG).is_file():
        if not (path / "config.toml").is_file():
            raise RunError(
                f"{path}: neither a run nor an export: give a folder that undrift run or undrift export wrote"
            )
        run = load_run(path)
        if run.preprocess is None:
            raise RunError(
                f"{path}: a run on a task of its own has no record of its data; use load_run(folder).model(task)"
            )
        run.warn_of_global(client)
        return LoadedModel(run.model(client=client, round=round), run.preprocess)
    if client is not None or round is not None:
        raise RunError(f"{path}: an export has one model; leave out client and round, or give the run's folder")
    made = read_preprocess(path)
    with reading(path / CONFIG):
        about = read_json(path / CONFIG)
        name, arguments, expected = about["model"], dict(about["arguments"]), str(about["sha256"]["weights"])
    if made is None or name is None:
        raise RunError(
            f"{path}: it is of a task of its own, without a record of its data; load {MODEL} into your model"
        )
    data = (path / MODEL).read_bytes()
    if sha256(data).hexdigest() != expected:
        raise RunError(f"{path / MODEL}: damaged: it is not the file that {CONFIG} describes; export the run again")
    module = build(name, **arguments)
    load_plain(module, load(data))
    return LoadedModel(module.eval(), made)
