"""Stand-in data: random examples with the shape, classes and owners of a known data set, for dry runs."""

import torch
from torch import Generator, Tensor

from undrift.core.model.random import derive
from undrift.data.arrays.dataset import Dataset, Split
from undrift.data.files.known import DataSource, find_source

TESTS = 8
OWNERS = 200


def stand_in(name: str, examples: int = 20_000, resize: int = 0) -> Dataset:
    """Random data in place of a data set; it needs no files and almost no memory.

    Inputs are overlapping windows of one random sequence, so any number of them takes the memory of a few. Every class
    is equally frequent. A data set with natural clients gets at most `OWNERS` of them.

    Args:
        name: one of `SOURCES`.
        examples: how many training examples; the test set has `TESTS`.
        resize: height and width of the images that models receive; 0 takes those of the data set.

    Example:
        >>> data = stand_in("cifar100", examples=500)
        >>> data.shape, data.classes, len(data.train), len(data.test)
        ((3, 32, 32), 100, 500, 8)
    """
    source = find_source(name)
    train, test = _split(source, examples, "train"), _split(source, TESTS, "test")
    about = (source.classes, source.mean, source.std, f"stand-in for {source.title}", source.symbols)
    return Dataset(source.name, source.kind, train, test, *about, resize=resize)


def _split(source: DataSource, examples: int, split: str) -> Split:
    """Inputs, classes in turn, and owners if the data have natural clients."""
    draw = torch.Generator().manual_seed(derive(0, f"stand-in {split}"))
    targets = torch.arange(examples) % source.classes
    natural = bool(source.owner) or source.form == "roles"
    owners = torch.arange(examples) // max(1, examples // min(OWNERS, examples)) % OWNERS if natural else None
    return Split(_inputs(source, examples, draw), targets, owners)


def _inputs(source: DataSource, examples: int, draw: Generator) -> Tensor:
    """Windows of a random sequence of bytes, or of tokens."""
    if source.kind == "text":
        sequence = torch.randint(source.symbols, (examples + source.length,), generator=draw)
        return sequence.unfold(0, source.length, 1)[:examples]
    channels, side = len(source.mean), source.pixels
    size = channels * side * side
    sequence = torch.randint(256, (examples + size,), generator=draw, dtype=torch.uint8)
    return sequence.as_strided((examples, channels, side, side), (1, side * side, side, 1))
