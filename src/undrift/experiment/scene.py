"""A run where it stands: its last whole checkpoint, a few of its clients and some test examples, only to be read.

Nothing of the run is touched, so it needs no lock and may go on meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from undrift import lens, server
from undrift.block import Perturbation
from undrift.data.evaluate import BATCH
from undrift.engine.local import Simulation
from undrift.engine.random import derive
from undrift.experiment.checkpoint import Checkpoints
from undrift.experiment.config import Config, EngineConfig
from undrift.experiment.folder import RunError, check_run, same_data
from undrift.experiment.live import some
from undrift.experiment.setup import Setup, engine, prepare
from undrift.lens.alignment import PENULTIMATE
from undrift.types import ServerState
from undrift.vector import Layout, layout_of


@dataclass(frozen=True, eq=False)
class Scene:
    """What the parts of a look need of a run, each made when first asked for.

    Args:
        setup: the run.
        simulation: an engine in this process that finds the clients' states.
        state: the server's, from the checkpoint.
        clients: at whom to look.
        seed: of the choice of examples and of all estimates.
        examples: how many of the official test set the model is judged on.
    """

    setup: Setup
    simulation: Simulation
    state: ServerState
    clients: list[int]
    seed: int
    examples: int

    @cached_property
    def gradients(self) -> Tensor:
        """The clients' gradients at the state's model, one per row."""
        return lens.probe(self.simulation, self.state, self.clients)

    @cached_property
    def updates(self) -> Tensor:
        """What the clients would send in the next round."""
        return lens.probe(self.simulation, self.state, self.clients, "update")

    @cached_property
    def perturbations(self) -> Tensor | None:
        """The clients' perturbations; None if the method has none."""
        if type(self.simulation.algorithm.perturbation) is Perturbation:
            return None
        return lens.probe(self.simulation, self.state, self.clients, "perturbation")

    @cached_property
    def models(self) -> Tensor:
        """The clients' models after the next round, one per row."""
        return server.send(self.simulation.algorithm, self.state).params + self.updates

    @cached_property
    def features(self) -> list[dict[str, Tensor]]:
        """What each of these models makes of the test examples, before its classifier and after every stage."""
        inputs = self.test[0]
        stages = lens.outlets(self.module, inputs[:2])
        return lens.client_features(self.module, self.models, inputs, [*stages[:-1], PENULTIMATE, *stages[-1:]])

    @cached_property
    def module(self) -> nn.Module:
        """The global model, in evaluation mode."""
        return self.simulation.module(self.state)

    @cached_property
    def layout(self) -> Layout:
        """The names and shapes of its tensors."""
        return layout_of(self.setup.task.model())

    @cached_property
    def test(self) -> tuple[Tensor, Tensor]:
        """Some examples of the official test set, as the model takes them."""
        task = self.setup.task
        draw = Generator().manual_seed(derive(self.seed, "lens/test"))
        chosen = torch.randperm(len(task.dataset.test), generator=draw)[: self.examples]
        return task.prepare(task.dataset.test.inputs[chosen]), task.dataset.test.targets[chosen]

    def objective(self, share: int = 1) -> lens.Objective:
        """The loss over these examples, or over the first half, third, ... of them."""
        pairs = zip(*(torch.split(x[: max(len(x) // share, 1)], BATCH) for x in self.test), strict=True)
        return lens.Objective(self.module, self.setup.task.loss, pairs)

    @cached_property
    def eigen(self) -> lens.Eigen:
        """The two leading eigenpairs of the Hessian over all these examples."""
        return lens.top(self.objective(), 2, seed=self.seed)


@contextmanager
def open_scene(
    folder: Path, seed: int = 0, clients: int = 10, examples: int = 500, round: int | None = None
) -> Iterator[Scene]:
    """A run's folder as a scene.

    Args:
        folder: the run's.
        seed: of the choice of clients and examples, and of all estimates.
        clients: at how many of its clients to look; all of them if there are fewer.
        examples: how many of the official test set the model is judged on.
        round: after how many rounds to look; None takes the last whole checkpoint.
    """
    check_run(folder)
    setup = prepare(Config.read(folder / "config.toml"))
    same_data(folder, setup.partition)
    # All engines keep clients' states alike, so that this process can read them whatever the run's own engine.
    config = setup.config.model_copy(update={"engine": EngineConfig()})
    with engine(replace(setup, config=config), folder / "clients") as simulation:
        size = len(simulation.start().params)
        state = _state(Checkpoints(folder / "checkpoints", setup.algorithm, size, config.identity()), round)
        chosen = some(setup.task, clients, seed)
        if len(chosen) < 2:
            raise RunError(f"{folder}: only {len(chosen)} of its clients has examples, and two are needed to compare")
        yield Scene(setup, simulation, state, chosen, seed, examples)


def _state(kept: Checkpoints, round: int | None) -> ServerState:
    """A state that was kept."""
    rounds = kept.rounds()
    if round is not None and round not in rounds:
        told = ", ".join(map(str, rounds)) or "none yet"
        raise RunError(
            f"{kept.folder}: round {round} was not kept; there are {told}. To keep rounds 10, 20, 30, 40 set "
            "output.checkpoint_every = 10 and output.keep = 4"
        )
    state = kept.latest() if round is None else kept.load(round)
    if state is None:
        raise RunError(f"{kept.folder}: no round has been kept yet; look again after the first checkpoint")
    return state
