"""Images of noise, 28 x 28 and grey, for tests of studies."""

import torch

from undrift.data import Dataset
from undrift.data.arrays.dataset import Split


def small_images(train: int = 200, test: int = 100) -> Dataset:
    """Random images whose labels go round.

    Args:
        train: how many training examples.
        test: how many test examples.
    """
    draw = torch.Generator().manual_seed(0)
    first, second = [
        Split(torch.randint(256, (n, 1, 28, 28), generator=draw).byte(), torch.arange(n) % 10) for n in (train, test)
    ]
    return Dataset("small", "image", first, second, classes=10, mean=(0.5,), std=(0.25,), title="Small")
