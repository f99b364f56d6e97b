"""The metrics of a round: one flat row of numbers."""

from functools import cached_property, partial
from math import ceil, nan
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from undrift.core.method.algorithm import Algorithm, cost, vectors_sent
from undrift.core.method.part_vector import travelling
from undrift.core.model.flat_model import bind
from undrift.core.model.modules import plain_copy
from undrift.core.records.types import ServerState, kinds
from undrift.core.server.step import send
from undrift.core.server.total import array_numbers
from undrift.core.tasks.evaluation import evaluating
from undrift.core.tasks.task import Evaluates, EvaluatesClients, Task
from undrift.data import DataTask
from undrift.engine.round.record import Record
from undrift.engine.round.simulation import Simulation
from undrift.runs.folder.judge import GLOBAL, judging_column
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.runs.setup.prepare import Setup
from undrift.util.steps import tell

POINTS, TUNED_POINTS = 10, 4
"""How often, at most, a run measures its personal models if `output.personal_every` is not set; the second if they are
tuned before they are evaluated."""


class Measure:
    """Measures the rounds of a run; holds one model for evaluation.

    Args:
        setup: the run.
        simulation: the run's simulation, which can read the clients' states.
    """

    def __init__(self, setup: Setup, simulation: Simulation) -> None:
        self.setup, self.simulation = setup, simulation
        self.model = bind(simulation.place.to(setup.task.model()))
        if isinstance(setup.task, DataTask) and setup.task.corruptions is not None:
            setup.task.corruptions.make()  # before the clock of the first evaluation starts
        self._personal: tuple[ServerState, Tensor] | None = None
        self._own: tuple[ServerState, Tensor] | None = None

    def row(self, state: ServerState, record: Record, seconds: float) -> dict[str, Any]:
        """The row of a round that has just ended in `state`."""
        return {**self.training(record), "seconds": round(seconds, 4), **self.evaluation(state)}

    def evaluation(self, state: ServerState) -> dict[str, Any]:
        """The numbers of the models after a round, as far as they are due, and the time that they took."""
        every, last = self.setup.config.output.evaluate_every, state.round == self.setup.config.rounds
        row: dict[str, Any] = {}
        begun = perf_counter()
        if last or state.round % every == 0:
            row.update(self.test(state))
        if self.needs_workers(state):
            tested = perf_counter()
            row.update(_spread("personal", self.personal(state), self.judged_by.metric))
            row["personal_seconds"] = round(perf_counter() - tested, 4)
        return {**row, "evaluate_seconds": round(perf_counter() - begun, 4)}

    def needs_workers(self, state: ServerState) -> bool:
        """Whether the row of this round has personal models, which the workers evaluate."""
        wanted = personal_every(self.setup.config, self.setup.algorithm)
        last = state.round == self.setup.config.rounds
        return self.has_personal and bool(last or (wanted and state.round % wanted == 0))

    def training(self, record: Record) -> dict[str, Any]:
        """The numbers of local training: loss, drift, traffic and gradients."""
        clients = len(record.visits)
        down, up = (self.model.w.element_size() * self.floats(record.round, up=up) for up in (False, True))
        received, uploaded = vectors_sent(self.setup.algorithm)
        arrays_down, arrays_up = (self.model.w.element_size() * numbers for numbers in self._arrays)
        served = clients + len(record.rejections)
        private = self.simulation.privacy(record.round + 1, self.setup.config.delta)
        return {
            **record.row(self.setup.local.rate(record.round)),
            **({} if private is None else {"epsilon": private.epsilon}),
            "bytes_down": int(down * (received * served + record.asked)) + arrays_down * served,
            "bytes_up": int(record.summed.get("bytes_up", (uploaded * up + arrays_up) * clients)),
        }

    @property
    def traffic(self) -> float:
        """A client's bytes up and down in a round, relative to FedAvg, which sends one model each way."""
        costs = cost(self.setup.algorithm, self.model.layout)
        return (costs.down + costs.up + sum(self._arrays) / self.model.layout.size) / 2

    @cached_property
    def _arrays(self) -> tuple[int, int]:
        """How many numbers a client receives and uploads beside vectors, as at the start of the run."""
        algorithm = self.setup.algorithm
        trees = [tree for _, block in algorithm.slots() for tree in (block.Sent, block.Up)]
        if not any("array" in kinds(tree).values() for tree in trees):
            return 0, 0
        return array_numbers(algorithm, send(algorithm, self.simulation.start(), self.simulation.setting).parts)

    def floats(self, round: int, *, up: bool) -> int:
        """How many numbers of the model a client receives or uploads in a round; others it has, or keeps."""
        return travelling(self.setup.algorithm.personalization, self.model.layout, round, up)

    def test(self, state: ServerState) -> dict[str, float]:
        """The metrics of the global model, on the held-out data and on every client's own.

        If the partition corrupts images, accuracy and loss are means over the types, and the clean accuracy and that of
        every type are added.
        """
        tell("round %d, evaluating", state.round)
        task, module = self.setup.task, self._load(state)
        if isinstance(task, DataTask) and task.classifies:
            row, own = _test_classifier(task, module)
            row |= {name: x for name, x in task.evaluate(module).items() if name not in row} if task.metrics else {}
            own = own if self.judged_by.metric == GLOBAL else self._own_scores()
        else:
            with evaluating(module):
                row = (
                    {name: float(x) for name, x in task.evaluate(module).items()} if isinstance(task, Evaluates) else {}
                )
            own = self._own_scores()
        self._own = state, own
        return {**row, **_spread("client", own, self.judged_by.metric)}

    def own(self, state: ServerState) -> Tensor:
        """The judged metric of the global model on every client's own test set; nan where there is none."""
        if self._own is not None and self._own[0] is state:  # computed in the last round's test
            return self._own[1]
        self._load(state)
        return self._own_scores()

    def _own_scores(self) -> Tensor:
        """The same for the model that is loaded."""
        task, metric = self.setup.task, self.judged_by.metric
        if isinstance(task, DataTask) and task.classifies and metric == GLOBAL:
            return task.per_client(self.model.module)
        if not self.setup.able.own_tests:
            return torch.full((task.population,), nan, dtype=torch.float64)
        scores = [own_score(task, self.model.module, client, metric=metric) for client in range(task.population)]
        return torch.tensor(scores, dtype=torch.float64)

    def weights(self, state: ServerState) -> dict[str, Tensor]:
        """The global model, for `load_state_dict`."""
        return plain_copy(self._load(state))

    @property
    def judged_by(self) -> Column:
        """The column by which the run is judged."""
        return judging_column(self.setup.algorithm, self.setup.local, self.setup.config.goal)

    @property
    def has_personal(self) -> bool:
        """Whether clients are evaluated with personal models."""
        return self.judged_by.personal

    def personal(self, state: ServerState) -> Tensor:
        """The judged metric of every client's personal model, tuned if the method has it so, on its own test set.

        A client that never took part is evaluated with the model it would start from; one whose state is lost has nan.
        """
        if self._personal is not None and self._personal[0] is state:  # computed in the last round's test
            return self._personal[1]
        clients = range(self.setup.task.population)
        tell("round %d, personal models of %d clients", state.round, len(clients))
        scores = self.simulation.scores(state, clients, partial(own_score, metric=str(self.judged_by.metric)))
        self._personal = state, torch.tensor([scores[client] for client in clients], dtype=torch.float64)
        return self._personal[1]

    def _load(self, state: ServerState) -> nn.Module:
        """The model for evaluation, with the values of the global one."""
        self.model.load(state.params, state.buffers, state.counts)
        return self.model.module


def own_score(task: Task, module: nn.Module, client: int, *, metric: str) -> float:
    """A metric of a model on a client's own test set; nan if there is none.

    Args:
        task: the data.
        module: the model.
        client: the client.
        metric: its name.
    """
    if isinstance(task, DataTask) and task.classifies and metric == GLOBAL:
        return task.own_score(module, client).accuracy
    if not isinstance(task, EvaluatesClients):
        return nan
    with evaluating(module):
        return float(task.evaluate_client(module, client).get(metric, nan))


def personal_every(config: Config, algorithm: Algorithm) -> int:
    """How many rounds lie between two measurements of personal models; 0 measures them only after the last round.

    By default they are measured with the global model, but at most `POINTS` times, because every client's model
    is loaded and evaluated, and at most `TUNED_POINTS` times if it is also tuned, which is training of all clients.

    Args:
        config: the settings of the run.
        algorithm: the method.

    Example:
        >>> [personal_every(Config(rounds=rounds), Algorithm()) for rounds in (5, 20, 25, 200)]
        [1, 2, 3, 20]
    """
    if config.output.personal_every is not None:
        return config.output.personal_every
    every, points = config.output.evaluate_every, TUNED_POINTS if algorithm.personalization.tuning else POINTS
    return every * ceil(config.rounds / (points * every))


def _test_classifier(task: DataTask, module: nn.Module) -> tuple[dict[str, float], Tensor]:
    """Accuracy and loss of a classifier on the test set, and its accuracy on every client's own."""
    right, loss = task.correct(module)
    row = {"accuracy": float(right.double().mean()), "test_loss": loss}
    if task.corruptions is not None:
        right, losses = task.under_types(module)
        each = right.double().mean(1)
        row = {"accuracy": float(each.mean()), "test_loss": float(losses.mean()), "clean_accuracy": row["accuracy"]}
        row |= {f"accuracy/{kind}": float(x) for kind, x in zip(task.corruptions.kinds, each, strict=True)}
    return row, task.per_client(module, None if task.holdout else right)


def _spread(name: str, scores: Tensor, metric: Column = GLOBAL) -> dict[str, float]:
    """The mean over clients and the mean of the worst tenth, without clients that have no test set."""
    sound = scores[~torch.isnan(scores)].sort(descending=metric.minimised).values
    if len(sound) == 0:
        return {}
    worst = sound[: max(1, len(sound) // 10)]
    return {f"{name}_{metric}": float(sound.mean()), f"{name}_worst_tenth": float(worst.mean())}
