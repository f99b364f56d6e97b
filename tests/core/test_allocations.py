"""The local loop allocates nothing of the model's size beside what the backward passes themselves return."""

from functools import partial
from itertools import accumulate

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


def test_a_gradient_is_not_held_twice() -> None:
    """What the backward pass returns of a long tensor is freed before it computes that of the next one."""
    width, layers = 512, 6
    model = bind(nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))))
    inputs = torch.randn(1, width, generator=torch.Generator().manual_seed(0))
    fresh = model.gradient(model.module(inputs).square().sum())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        reused = model.gradient(model.module(inputs).square().sum(), reuse=True)
    assert found.profiler is not None and found.profiler.kineto_results is not None
    memory = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = accumulate(event.nbytes() for event in sorted(memory, key=lambda event: event.start_ns()))
    assert torch.equal(reused, fresh)
    assert 4 * width**2 <= max(held) < 2.5 * 4 * width**2


def test_a_gradient_that_is_reused_is_zero_where_the_loss_does_not_reach() -> None:
    width = 300
    first, second = nn.Linear(width, width), nn.Linear(2, 2)
    model = bind(nn.ModuleList([first, second]))
    assert model.g is not None
    for part, size in ((first, width), (second, 2)):
        model.g.fill_(1.0)
        loss = part(torch.ones(1, size)).sum()
        assert torch.equal(model.gradient(loss, reuse=True), model.gradient(part(torch.ones(1, size)).sum()))
    wanted = tuple(second.parameters())
    model.g.fill_(1.0)
    found = model.gradient(second(torch.ones(1, 2)).sum(), reuse=True, wanted=wanted)
    assert int(found.count_nonzero()) == 6 and not any(p._backward_hooks for p in model.parameters)


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, 300_000])
def test_pieces_are_views_that_cover_a_vector(size: int) -> None:
    """Work on pieces gives the bits of work on whole vectors."""
    a, b = torch.randn(size), torch.randn(size)
    expected = a.clone().add_(b, alpha=0.3)
    for here, other in pieces(a, b):
        here.add_(other, alpha=0.3)
    assert torch.equal(a, expected)
