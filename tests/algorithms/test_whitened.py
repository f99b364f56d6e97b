"""Whitened against its formula, written out layer by layer, on the oracles' rounds of its hosts."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import methods
from oracle.methods import Params
from oracle.whitening import written_out
from support.rounds import View, close, flat, path
from undrift import Local, make
from undrift.blocks import Filters, Uniform, center
from undrift.core.tasks.tensor_task import TensorTask

LOCAL = Local(lr=0.1, decay=0.9, clip=0.5, epochs=2, batch_size=4)


class Net(nn.Module):
    """A convolution and two dense layers, of which the first reads four maps of 2 x 2 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden, self.head = nn.Conv2d(1, 4, 3), nn.Linear(16, 6), nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(self.conv(images).relu().flatten(1)).relu())
        return logits


def pictures() -> TensorTask:
    stream = torch.Generator().manual_seed(5)
    sizes = [5, 12, 7, 9]
    targets = torch.randint(3, (sum(sizes),), generator=stream)
    inputs = torch.rand(sum(sizes), 1, 4, 4, generator=stream, dtype=torch.float64) + targets.view(-1, 1, 1, 1)
    return TensorTask(lambda: Net().double(), inputs, targets, torch.split(torch.arange(sum(sizes)), sizes))


class Slow(View):
    """A problem whose gradients are changed example by example, with matrices that are inverted."""

    def gradient(self, params: Params, batch: Any) -> Params:
        """The gradient without means, damped along what the inputs have in common."""
        grads = super().gradient(params, batch)
        net: Any
        images, net = batch[0], self.model
        maps = net.conv(images).relu().flatten(1)
        patches = torch.stack(
            [image[0, a : a + 3, b : b + 3].flatten() for image in images for a in (0, 1) for b in (0, 1)]
        )
        layers = {"conv": (patches, 9), "hidden": (maps, 4), "head": (net.hidden(maps).relu(), 6)}
        for name, (inputs, size) in layers.items():
            weight = f"{name}.weight"
            grads[weight] = written_out(grads[weight].flatten(1), inputs.detach(), 0.1, size).view_as(grads[weight])
        return grads


@pytest.mark.parametrize(("host", "arguments"), [("uniform", {}), ("scaffold", {}), ("feddyn", {"mu": 0.2})], ids=str)
def test_equals_its_oracle(host: str, arguments: dict[str, Any]) -> None:
    task = pictures()
    algorithm = make("whitened", host=replace(make(host, **arguments), aggregation=Uniform()))
    expected = methods.run(
        host, Slow(task, LOCAL, cohort=3, seed=2), methods.Settings(0.1, 0.9, clip=0.5), 4, **arguments
    )
    close(path(algorithm, task, LOCAL, 4, cohort=3, seed=2), flat(expected))


def test_a_large_share_removes_the_means_only() -> None:
    task = pictures()
    plain = replace(make("uniform"), spectral=Filters(gradient=center("maps")))
    found, expected = (path(x, task, LOCAL, 3, cohort=3, seed=2) for x in (make("whitened", share=1e12), plain))
    close(found, expected)


def test_the_means_of_weights_stay_as_they_are() -> None:
    task, local = pictures(), replace(LOCAL, clip=None)
    layout = View(task, local).simulation.worker.model.layout
    before = flat([View(task, local).start()])[0]
    after = path(make("whitened"), task, local, 3, cohort=3, seed=2)[-1]
    moved = layout.named(after - before)
    for name, size in (("conv.weight", 9), ("hidden.weight", 4), ("head.weight", 6)):
        assert moved[name].abs().max() > 1e-3
        assert moved[name].view(-1, size).mean(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize("host", ["specgrad", "fedfft", "whitened"])
def test_a_host_that_is_filtered_already_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="host must not change gradients or perturbations already, got spectral="):
        make("whitened", host=make(host))
