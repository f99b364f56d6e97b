"""A checkpoint of a run to measure, read-only: its state, a few of its clients and some test examples."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor, nn

from undrift import lens
from undrift.core.model.flat_model import Layout, layout_of
from undrift.core.model.random import derive
from undrift.core.records.types import ServerState
from undrift.core.server import step as server
from undrift.data import DataTask
from undrift.data.tasks.evaluate import BATCH
from undrift.engine.round.simulation import Simulation
from undrift.lens.alignment import PENULTIMATE


@dataclass(frozen=True, eq=False)
class Scene:
    """What measurements need from a run, each computed on first use.

    Args:
        task: the data and the model.
        simulation: an engine in this process that reads the clients' states.
        state: the server's, from the checkpoint.
        clients: the clients to measure.
        seed: of the choice of examples and of all estimates.
        examples: how many examples of the official test set are used.
    """

    task: DataTask
    simulation: Simulation
    state: ServerState
    clients: list[int]
    seed: int
    examples: int

    @cached_property
    def gradients(self) -> Tensor:
        """The clients' gradients at the state's model, one per row."""
        return lens.client_vectors(self.simulation, self.state, self.clients)

    @cached_property
    def updates(self) -> Tensor:
        """What the clients would send in the next round."""
        return lens.client_vectors(self.simulation, self.state, self.clients, "update")

    @cached_property
    def perturbations(self) -> Tensor | None:
        """The clients' perturbations; None if the method has none."""
        if not self.simulation.job.algorithm.fills("perturbation"):
            return None
        return lens.client_vectors(self.simulation, self.state, self.clients, "perturbation")

    @cached_property
    def models(self) -> Tensor:
        """The clients' models after the next round, one per row."""
        job = self.simulation.job
        return server.send(job.algorithm, self.state, job.setting).params + self.updates

    @cached_property
    def features(self) -> list[dict[str, Tensor]]:
        """The features of each of these models on the test examples, before the classifier and after every stage."""
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
        return layout_of(self.task.model())

    @cached_property
    def test(self) -> tuple[Tensor, Tensor]:
        """Examples of the official test set, prepared for the model."""
        task = self.task
        draw = Generator().manual_seed(derive(self.seed, "lens/test"))
        chosen = torch.randperm(len(task.dataset.test), generator=draw)[: self.examples]
        return task.prepare(task.dataset.test.inputs[chosen]), task.dataset.test.targets[chosen]

    def objective(self, share: int = 1) -> lens.EmpiricalLoss:
        """The loss over these examples, or over the first half, third, ... of them."""
        pairs = zip(*(torch.split(x[: max(len(x) // share, 1)], BATCH) for x in self.test), strict=True)
        return lens.EmpiricalLoss(self.module, self.task.loss, pairs)

    @cached_property
    def eigen(self) -> lens.Eigen:
        """The two leading eigenpairs of the Hessian over all these examples."""
        return lens.top(self.objective(), 2, seed=self.seed)
