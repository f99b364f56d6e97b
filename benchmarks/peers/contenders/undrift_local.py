"""Undrift in one process."""

from torch import Generator, Tensor, nn

from turns import Turns
from undrift import Local, Simulation, TensorTask, make
from undrift.engine.round.backend import Backend
from work import MODELS, Data, Setting, cohort, initial


class InOrder(TensorTask):
    """A task whose clients read their data in one order."""

    def order(self, client: int, generator: Generator) -> Tensor:
        """The examples as they lie.

        Args:
            client: its number.
            generator: not used.
        """
        own: Tensor = self.clients[client]
        return own


def run(
    turns: Turns,
    setting: Setting,
    data: Data,
    method: str,
    workers: int,
    shuffle: bool,
    backend: Backend | None = None,
    together: bool = False,
) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg" or "scaffold".
        workers: must be 1 without a backend.
        shuffle: whether clients shuffle their data.
        backend: where clients are trained; None is this process.
        together: whether a worker trains its clients in groups, of 50 at most.
    """
    if backend is None and workers != 1:
        raise ValueError("undrift_local runs in one process: workers must be 1; use undrift_ray")
    kind = TensorTask if shuffle else InOrder
    task = kind(MODELS[setting.model], data.inputs, data.targets, data.clients)
    size = min(50, -(-setting.cohort // workers)) if together else 1
    local = Local(lr=setting.lr, epochs=1, batch_size=setting.batch, together=size)
    simulation = Simulation(make(method), task, local, cohort=setting.cohort, backend=backend)
    with simulation:
        state = simulation.start()
        state.params.copy_(nn.utils.parameters_to_vector(initial(setting).parameters()).detach())
        while turns.pause(lambda: simulation.module(state)):  # noqa: B023  the state at that moment
            state, _ = simulation.round(state, cohort(setting, state.round))
