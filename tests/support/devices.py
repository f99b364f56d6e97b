"""Small tasks and runs on the CPU and on a device that is not there; see `pretend`."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support import pretend
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import bind
from undrift.core.records.types import Local, ServerState
from undrift.core.server.step import close, open_run, send
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.simulation import Simulation
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker import Worker
from undrift.testing.tasks import MODELS

needed = pytest.mark.skipif(bool(pretend.missing), reason=f"no pretend device: {pretend.missing}")
"""Marks tests that need the device."""

LOCAL = Local(lr=0.05, weight_decay=1e-3, clip=10.0, batch_size=2)


class Small(nn.Module):
    """A convolution, a normalisation with running statistics, dropout if asked for, and a head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        body = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout)]
        self.body = nn.Sequential(*body)
        self.head = nn.Linear(2 * 2 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of 4 x 4 images."""
        scores: Tensor = self.head(self.body(x))
        return scores


class Judged(TensorTask):
    """A task with proxy data: its first examples."""

    def proxy(self) -> Iterator[Any]:
        """One batch."""
        for chosen in torch.split(torch.arange(4), 4):
            yield self.inputs[chosen], self.targets[chosen]


def task_for(algorithm: Algorithm | None = None, dropout: float = 0.0, sizes: tuple[int, ...] = (3, 4, 16)) -> Judged:
    """A few images for each client, with held-out ones, and a model that fits the method."""
    draw = torch.Generator().manual_seed(3)
    make: Callable[[], nn.Module]
    count, make, side = sum(sizes), partial(Small, dropout), 4
    if algorithm is not None and algorithm.needs.model:
        make, side = partial(MODELS[algorithm.needs.model], **algorithm.needs.arguments), 6
    targets = torch.randint(3, (count,), generator=draw)
    inputs = torch.randn(count, 1, side, side, generator=draw) + targets.view(-1, 1, 1, 1)
    clients = torch.split(torch.arange(count), list(sizes))
    test = (inputs[-5:] + 0.5, targets[-5:])
    return Judged(make, inputs, targets, clients, test=test, client_tests=[test] * len(sizes))


def rounds(algorithm: Algorithm, device: str, count: int = 2, task: Any = None, **settings: Any) -> ServerState:
    """The state after some rounds on a device; no client may be rejected."""
    task = task_for(algorithm, sizes=(3, 4)) if task is None else task
    simulation = Simulation(algorithm, task, LOCAL, seed=5, failures="raise", device=device, **settings)
    state = simulation.start()
    for _ in range(count):
        state, record = simulation.round(state)
        assert not record.rejections
    return state


def visited(algorithm: Algorithm, *steps: int) -> list[Counter[str]]:
    """What ran on the device in a client's second visit, for several numbers of steps; its first had one step."""
    task = task_for(algorithm, sizes=(16,))
    state = open_run(algorithm, bind(task.model()))
    first = Job(algorithm, task, Local(lr=0.05, batch_size=2, steps=1), device="pretend")
    worker, broadcast = Worker(first), send(algorithm, state, first.setting)
    partial = worker.serve(broadcast, [0], {}, 1)
    assert not partial.rejections, partial.cause
    if not algorithm.needs.proxy:
        state = close(algorithm, state, first.setting, [(broadcast, partial.total)])
    out, broadcast = [], send(algorithm, state, first.setting)
    for count in steps:
        worker.job = replace(first, local=Local(lr=0.05, batch_size=2, steps=count))
        with pretend.counted() as found:
            partial = worker.serve(broadcast, [0], state.accepted, 1)
        assert not partial.rejections, partial.cause
        out.append(found)
    return out
