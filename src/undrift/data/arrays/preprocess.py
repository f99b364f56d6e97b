"""What is done to an example before a model receives it, as one record that training, export and prediction share.

`Preprocess` is the record, preprocess.json in the folder of a run or of an export. `Inputs` is the module that applies
it: training, predictions, exported programs and ONNX graphs all run its arithmetic.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

ONE_HOT, CODES = "one-hot", "codes"


@dataclass(frozen=True)
class InputColumn:
    """A column of a table that models receive.

    Args:
        name: the column.
        categories: its different texts, in sorted order; empty for a column of numbers.
        fill: what stands for a missing value: a number, or the position of a category; None if there must be a value.
    """

    name: str
    categories: tuple[str, ...] = ()
    fill: float | None = None


@dataclass(frozen=True)
class Preprocess:
    """What is done to an example before a model receives it, and what the model's outputs mean.

    Args:
        kind: "image", "text" or "table".
        shape: of one example before: (channels, height, width) of bytes, (length,) of tokens, (columns,) of a table.
        outputs: how many outputs a model has: one for each class, or for each number to predict.
        labels: the names of the classes, in the order of the outputs; empty if the outputs are numbers.
        targets: the columns that are predicted; empty if they have no names.
        mean: of each channel in [0, 1], or of each number that a model receives of a table.
        std: the standard deviation of each.
        target_mean: of each number to predict; empty if these are not scaled.
        target_std: the standard deviation of each.
        columns: of a table, in the order of the inputs; empty if the rows have no names.
        encoding: how columns of texts become numbers, "one-hot" or "codes"; of texts "characters", "words" or "tokens".
        symbols: how many different tokens there are.
        vocabulary: the characters of the tokens from 0 on, for "characters"; other encodings need none.
        resize: height and width to which images are scaled after normalisation; 0 leaves them.
        statistics: how mean and deviation were computed: "exact" by sums over clients, "pooled" over all rows as before
            version 0.3, "given" by a file for this table, or "" if they are not of the data.
    """

    kind: str
    shape: tuple[int, ...]
    outputs: int = 1
    labels: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()
    columns: tuple[InputColumn, ...] = ()
    encoding: str = ""
    symbols: int = 0
    vocabulary: str = ""
    resize: int = 0
    statistics: str = ""

    def record(self) -> dict[str, Any]:
        """The record as JSON values, for `from_record`."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Preprocess":
        """A record that `record` returned, from a file.

        Args:
            record: the content of preprocess.json.

        Example:
            >>> made = Preprocess("table", (2,), columns=(InputColumn("age"), InputColumn("sex", ("f", "m"))))
            >>> Preprocess.from_record(made.record()) == made
            True
        """
        known = {one.name: record[one.name] for one in fields(cls) if one.name in record}
        found: dict[str, Any] = {key: tuple(x) if isinstance(x, list | tuple) else x for key, x in known.items()}
        found["columns"] = tuple(
            InputColumn(one["name"], tuple(one["categories"]), one["fill"]) for one in found.get("columns", ())
        )
        return cls(**found)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input as models receive it."""
        if self.columns:
            return (sum(len(self._codes(one)) or 1 for one in self.columns),)
        return (self.shape[0], self.resize, self.resize) if self.resize else self.shape

    @property
    def example(self) -> Tensor:
        """Two examples of zeros, as `Inputs` takes them."""
        kinds = {"image": torch.uint8, "text": torch.int64, "table": torch.float64 if self.columns else torch.float32}
        return torch.zeros(2, *self.shape, dtype=kinds[self.kind])

    def _codes(self, column: InputColumn) -> range:
        """The positions of the categories that have an input of their own."""
        return range(len(column.categories) if self.encoding == ONE_HOT else 0)


class Inputs(nn.Module):
    """Examples as files have them as a model takes them; see `Preprocess`.

    Rows of a table are float64, one number per column: a number, or the position of a category, or NaN if it is missing
    or unknown. Images are bytes, tokens whole numbers.

    Args:
        preprocess: the record.
    """

    source: Tensor
    code: Tensor
    fill: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, preprocess: Preprocess) -> None:
        super().__init__()
        self.preprocess = preprocess
        wide = torch.float64
        mean, std = (torch.tensor(x, dtype=wide) for x in (preprocess.mean, preprocess.std))
        if preprocess.kind == "image":
            scale, shift = image_scaling(mean, std)
            self.register_buffer("mean", shift, persistent=False)
            self.register_buffer("std", scale, persistent=False)
        elif preprocess.columns:
            pairs = [
                (place, code)
                for place, column in enumerate(preprocess.columns)
                for code in preprocess._codes(column) or (-1,)
            ]
            fill = [float("nan") if one.fill is None else one.fill for one in preprocess.columns]
            self.register_buffer("source", torch.tensor([place for place, _ in pairs]), persistent=False)
            self.register_buffer("code", torch.tensor([code for _, code in pairs], dtype=wide), persistent=False)
            self.register_buffer("fill", torch.tensor(fill, dtype=wide), persistent=False)
            self.register_buffer("mean", mean if len(mean) else torch.zeros(len(pairs), dtype=wide), persistent=False)
            self.register_buffer("std", std if len(std) else torch.ones(len(pairs), dtype=wide), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """A batch of examples as a model takes it."""
        kind = self.preprocess.kind
        if kind == "image":
            size = self.preprocess.resize
            return prepare_images(inputs, self.std, self.mean, (size, size) if size else None)
        if kind == "text":
            return inputs.long()
        if not self.preprocess.columns:
            return inputs.float()
        filled = torch.where(torch.isnan(inputs), self.fill, inputs)[:, self.source]
        numbers = torch.where(self.code >= 0, (filled == self.code).double(), filled)
        return ((numbers - self.mean) / self.std).float()


class Outputs(nn.Module):
    """What a model returns as what its user wants: a probability of each class, or numbers in their own units.

    Args:
        preprocess: the record.
    """

    def __init__(self, preprocess: Preprocess) -> None:
        super().__init__()
        self.preprocess = preprocess

    def forward(self, outputs: Tensor) -> Tensor:
        """A batch of outputs."""
        if self.preprocess.labels:
            return torch.softmax(outputs, 1)
        return unscale(outputs, self.preprocess.target_mean, self.preprocess.target_std)


def image_scaling(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and shift of ((x / 255) - mean) / std as one product and one sum, by channel.

    Args:
        mean: of each channel, float64.
        std: of each channel, float64.
    """
    scale, shift = 1 / (255 * std), -mean / std
    return scale.float().view(-1, 1, 1), shift.float().view(-1, 1, 1)


def prepare_images(inputs: Tensor, scale: Tensor, shift: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Normalised images in channels-last memory, of another size if one is given: bilinear with antialiasing.

    Args:
        inputs: bytes (examples, channels, height, width).
        scale: the factor of each channel.
        shift: what is added to each channel.
        size: the height and width that models receive; None keeps those of the inputs.
    """
    images = (inputs.to(memory_format=torch.channels_last) * scale).add_(shift)
    if size is None or tuple(images.shape[2:]) == size:
        return images
    images = interpolate(images, size, mode="bilinear", antialias=True)
    return images.contiguous(memory_format=torch.channels_last)


def unscale(numbers: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Numbers to predict in their own units.

    Args:
        numbers: scaled; the last axis has one for each target, or there is one target.
        mean: of each target; empty if they are not scaled.
        std: of each target.

    Example:
        >>> unscale(torch.tensor([[0.0], [2.0]]), (10.0,), (5.0,)).tolist()
        [[10.0], [20.0]]
    """
    if not mean:
        return numbers
    return numbers * numbers.new_tensor(std) + numbers.new_tensor(mean)
