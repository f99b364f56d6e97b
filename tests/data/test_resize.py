"""Images that are resized batch by batch, and other normalisations."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from support.runs import tiny, tiny_data  # noqa: F401  fixtures
from test_data_task import data, epoch, toy
from undrift.data import DataTask, load


class Recorder(nn.Module):
    """Notes the shapes it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.shapes: set[tuple[int, ...]] = set()

    def forward(self, images: Tensor) -> Tensor:
        self.shapes.add(tuple(images.shape[1:]))
        assert images.is_contiguous(memory_format=torch.channels_last)
        return self.weight + images.mean() * torch.ones(len(images), 4)


def resized(side: int) -> DataTask:
    return toy(dataset=replace(data(), resize=side), make=Recorder, augment="flip+crop(padding=2)", reserved=[1, 2])


def test_every_way_to_a_model_is_resized() -> None:
    task, module = resized(13), Recorder()
    assert task.dataset.shape == (2, 13, 13) and task.dataset.train.inputs.shape[1:] == (2, 6, 6)
    for inputs, _ in [*epoch(task, 0), *task.proxy()]:
        module(inputs)
    task.test(module)
    task.own_score(module, 0)
    task.per_client(module)
    assert module.shapes == {(2, 13, 13)}


@pytest.mark.parametrize("side", [4, 13])
def test_resizing_is_bilinear_with_antialiasing_of_the_augmented_image(side: int) -> None:
    """By hand: each axis a matrix of triangle weights, as wide as a pixel of the smaller of both images."""
    task, plain = resized(side), resized(0)
    scale = 6 / side
    centre, width = (torch.arange(side) + 0.5) * scale, max(scale, 1.0)
    weights = (1 - (torch.arange(6) + 0.5 - centre[:, None]).abs() / width).clamp_min(0)
    weights /= weights.sum(1, keepdim=True)
    for (big, label), (small, same) in zip(epoch(task, 0), epoch(plain, 0), strict=True):
        torch.testing.assert_close(big, weights @ small @ weights.T)
        assert torch.equal(label, same)


def test_an_image_does_not_depend_on_its_batch() -> None:
    task = resized(13)
    images = task.dataset.train.inputs
    alone = torch.cat([task.prepare(image[None]) for image in images])
    assert torch.equal(task.prepare(images), alone) and torch.equal(task.prepare(images[5:9]), alone[5:9])


def test_the_stored_size_is_left_alone() -> None:
    task, plain = toy(dataset=replace(data(), resize=6)), toy()
    assert all(torch.equal(a[0], b[0]) for a, b in zip(epoch(task, 1), epoch(plain, 1), strict=True))


def test_load_resizes_and_normalises(tiny: Path) -> None:  # noqa: F811
    plain, changed = load("fashion-mnist"), load("fashion-mnist", resize=56, mean=0.5, std=0.25)
    assert changed.shape == (1, 56, 56) and (changed.mean, changed.std) == ((0.5,), (0.25,))
    assert torch.equal(plain.train.inputs, changed.train.inputs) and plain.shape == (1, 28, 28)
    for arguments, message in (
        ({"resize": -1}, r"resize must be 1 to 1024 pixels, or 0 for none, got -1"),
        ({"resize": 5000}, "resize must be 1 to 1024 pixels"),
        ({"std": 0.0}, "std must be above 0 and finite, got 0.0"),
        ({"mean": 128.0}, r"mean must be in \[0, 1\], where 1 is white, got 128.0"),
        ({"stride": 2}, "stride is for windows of characters, fashion-mnist has images; leave it out"),
    ):
        with pytest.raises(ValueError, match=message):
            load("fashion-mnist", **arguments)


def test_text_is_not_resized(tmp_path: Path) -> None:
    speech = "the quick brown fox jumps over the lazy dog, again and again. " * 10
    (tmp_path / "input.txt").write_text(f"ONE:\n{speech}\n\nTWO:\n{speech}\n")
    for arguments, message in (({"resize": 8}, "only images can be resized"), ({"mean": 0.5}, "leave out mean")):
        with pytest.raises(ValueError, match=message):
            load("shakespeare", tmp_path, keep=False, **arguments)
