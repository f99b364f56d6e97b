"""Undrift in one process."""

from collections.abc import Iterator
from typing import Any

from torch import Generator, nn
from turns import Turns
from work import MODELS, Data, Setting, cohort, initial

from undrift import Local, Simulation, TensorTask, make
from undrift.engine.backend import Backend


class InOrder(TensorTask):
    """A task whose clients read their data in one order."""

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        """Batches of the data as they lie.

        Args:
            client: its number.
            size: examples in a batch.
            generator: not used.
        """
        for own in self.clients[client].split(size):
            yield self.inputs[own], self.targets[own]


def run(
    turns: Turns,
    setting: Setting,
    data: Data,
    method: str,
    workers: int,
    shuffle: bool,
    backend: Backend | None = None,
) -> None:
    """Train until told to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg" or "scaffold".
        workers: must be 1 without a backend.
        shuffle: whether clients shuffle their data.
        backend: where clients are trained; None is this process.
    """
    if backend is None and workers != 1:
        raise ValueError("undrift_local runs in one process: workers must be 1; use undrift_ray")
    kind = TensorTask if shuffle else InOrder
    task = kind(MODELS[setting.model], data.inputs, data.targets, data.clients)
    local = Local(lr=setting.lr, epochs=1, batch_size=setting.batch)
    simulation = Simulation(make(method), task, local, cohort=setting.cohort, backend=backend)
    with simulation:
        state = simulation.start()
        state.params.copy_(nn.utils.parameters_to_vector(initial(setting).parameters()).detach())
        while turns.pause(lambda: simulation.module(state)):  # noqa: B023  the state at that moment
            state, _ = simulation.round(state, cohort(setting, state.round))
