"""The local loop allocates nothing of the model's size beside what the backward passes themselves return."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from undrift import Local, TensorTask, make
from undrift.core.client.visit import train
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import bind, pieces
from undrift.core.model.random import generator
from undrift.core.server import step as server

WIDE = 2048  # with 100 outputs 204,900 parameters: several pieces


def allocations(name: str, steps: int) -> int:
    """How many tensors of more than half the model's size a visit allocates."""
    inputs, labels = torch.randn(steps, WIDE, generator=torch.Generator().manual_seed(0)), torch.arange(steps) % 10
    task = TensorTask(partial(nn.Linear, WIDE, 100), inputs, labels, [torch.arange(steps)])
    algorithm, model = make(name), bind(task.model().train())
    local = Local(lr=0.01, weight_decay=1e-3, batch_size=1)
    sent = server.send(algorithm, server.open_run(algorithm, model), Setting(1, local, model.layout))
    random = partial(generator, 0, 0, 0)

    def visit() -> None:
        train(
            algorithm,
            model,
            partial(task.loss, model.module),
            task.batches(0, 1, random("batches")),
            sent,
            None,
            local,
            client=0,
            examples=steps,
            steps=steps,
            random=random,
            epoch=lambda order: task.batches(0, 1, order),
            out=torch.empty_like(model.w),
        )

    visit()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        visit()
    assert found.profiler is not None and found.profiler.kineto_results is not None
    memory = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    return sum(event.nbytes() > 2 * model.layout.size for event in memory)


@pytest.mark.parametrize(
    ("name", "per_step"),
    [
        ("fedavg", 1),
        ("fedprox", 1),
        ("scaffold", 1),
        ("feddyn", 1),
        ("fedcm", 1),
        ("fednova", 1),
        ("specgrad", 1),
        ("fedsam", 2),
        ("fedfft", 2),
        ("fedfft-d", 2),
    ],
)
def test_a_step_allocates_only_its_gradients(name: str, per_step: int) -> None:
    """One tensor for each gradient of a step, the one that the backward pass returns, and no other vector."""
    few, many = allocations(name, 3), allocations(name, 9)
    assert (many - few) / 6 == per_step


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, 300_000])
def test_pieces_are_views_that_cover_a_vector(size: int) -> None:
    """Work on pieces gives the bits of work on whole vectors."""
    a, b = torch.randn(size), torch.randn(size)
    expected = a.clone().add_(b, alpha=0.3)
    for here, other in pieces(a, b):
        here.add_(other, alpha=0.3)
    assert torch.equal(a, expected)
