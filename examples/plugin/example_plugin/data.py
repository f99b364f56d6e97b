"""A data set: grey images of 8 x 8 pixels with stripes in one of four directions, under noise."""

import torch

from undrift.data import Dataset, Split

DIRECTIONS = torch.tensor([[0, 1], [1, 0], [1, 1], [1, -1]])


def stripes() -> Dataset:
    """600 images for training and 200 for testing, the same at every call."""
    draw = torch.Generator().manual_seed(0)
    train, test = (_images(count, draw) for count in (600, 200))
    return Dataset("stripes", "image", train, test, 4, (0.5,), (0.25,), "Stripes")


def _images(count: int, draw: torch.Generator) -> Split:
    targets = torch.randint(len(DIRECTIONS), (count,), generator=draw)
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    steps = DIRECTIONS[targets]
    phase = steps[:, :1, None] * rows + steps[:, 1:, None] * columns
    noise = torch.randint(0, 120, phase.shape, generator=draw)
    return Split((120 * (phase % 4 < 2) + noise).to(torch.uint8)[:, None], targets)
