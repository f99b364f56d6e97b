"""The metrics of a round: one flat row of numbers."""

from math import ceil, nan
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from undrift.core.algorithm import Algorithm, cost
from undrift.core.types import ServerState
from undrift.core.vector import bind
from undrift.engine.record import Record
from undrift.engine.simulation import Simulation
from undrift.engine.store import StoreError
from undrift.experiment.config import Config
from undrift.experiment.judge import PERSONAL, Column, judged_by
from undrift.experiment.setup import Setup
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
        self.model = bind(setup.task.model())
        self.costs = cost(setup.algorithm)
        mask = setup.algorithm.personalization.shared(self.model.layout)
        self.shared = 1.0 if mask is None else float(mask.float().mean())
        if setup.task.corruptions is not None:
            setup.task.corruptions.make()  # before the clock of the first evaluation starts
        self._personal: tuple[ServerState, Tensor] | None = None
        self._own: tuple[ServerState, Tensor] | None = None

    def row(self, state: ServerState, record: Record, seconds: float) -> dict[str, Any]:
        """The row of a round that has just ended in `state`."""
        every, last = self.setup.config.output.evaluate_every, state.round == self.setup.config.rounds
        row = {**self.training(record), "seconds": round(seconds, 4)}
        begun = perf_counter()
        if last or state.round % every == 0:
            row.update(self.test(state))
        wanted = personal_every(self.setup.config, self.setup.algorithm)
        if self.has_personal and (last or (wanted and state.round % wanted == 0)):
            tested = perf_counter()
            row.update(_spread("personal", self.personal(state)))
            row["personal_seconds"] = round(perf_counter() - tested, 4)
        return {**row, "evaluate_seconds": round(perf_counter() - begun, 4)}

    def training(self, record: Record) -> dict[str, Any]:
        """The numbers of local training: loss, drift, traffic and gradients."""
        clients = len(record.visits)
        size = self.model.w.numel() * self.model.w.element_size() * self.shared
        return {
            **record.row(self.setup.local.rate(record.round)),
            "bytes_down": int(size * (self.costs.down * (clients + len(record.rejections)) + record.asked)),
            "bytes_up": int(self.costs.up * size * clients),
        }

    @property
    def traffic(self) -> float:
        """A client's bytes up and down in a round, relative to FedAvg, which sends one model each way."""
        return (self.costs.down + self.costs.up) / 2 * self.shared

    def test(self, state: ServerState) -> dict[str, float]:
        """The metrics of the global model, on the official test set and on every client's own.

        If the partition corrupts images, accuracy and loss are means over the types, and the clean accuracy and that of
        every type are added.
        """
        tell("round %d, evaluating", state.round)
        self._load(state, state.params, state.buffers)
        task, module = self.setup.task, self.model.module
        right, loss = task.correct(module)
        row = {"accuracy": float(right.double().mean()), "test_loss": loss}
        if task.corruptions is not None:
            right, losses = task.under_types(module)
            each = right.double().mean(1)
            row = {"accuracy": float(each.mean()), "test_loss": float(losses.mean()), "clean_accuracy": row["accuracy"]}
            row |= {f"accuracy/{kind}": float(x) for kind, x in zip(task.corruptions.kinds, each, strict=True)}
        own = task.per_client(module, None if task.holdout else right)
        self._own = state, own
        return {**row, **_spread("client", own)}

    def own(self, state: ServerState) -> Tensor:
        """The accuracy of the global model on every client's own test set."""
        if self._own is not None and self._own[0] is state:  # computed in the last round's test
            return self._own[1]
        self._load(state, state.params, state.buffers)
        return self.setup.task.per_client(self.model.module)

    def weights(self, state: ServerState) -> dict[str, Tensor]:
        """The global model, for `load_state_dict`."""
        self._load(state, state.params, state.buffers)
        return {name: x.clone() for name, x in self.model.module.state_dict().items()}

    @property
    def judged_by(self) -> Column:
        """The column by which the run is judged."""
        return judged_by(self.setup.algorithm, self.setup.local)

    @property
    def has_personal(self) -> bool:
        """Whether clients are evaluated with personal models."""
        return self.judged_by == PERSONAL

    def personal(self, state: ServerState) -> Tensor:
        """The accuracy of every client's personal model, tuned if the method says so, on its own test set.

        A client that never took part is evaluated with the model it would start from; one whose state is lost has nan.
        """
        if self._personal is not None and self._personal[0] is state:  # computed in the last round's test
            return self._personal[1]
        task, accuracies = self.setup.task, []
        for client in range(task.population):
            tell("round %d, personal model %d of %d", state.round, client + 1, task.population)
            try:
                accuracies.append(task.own_score(self.simulation.worker.personal(client, state), client).accuracy)
            except StoreError:
                accuracies.append(nan)
        self._personal = state, torch.tensor(accuracies, dtype=torch.float64)
        return self._personal[1]

    def _load(self, state: ServerState, params: Tensor, buffers: Tensor) -> None:
        """Copy a model's values into the one for evaluation."""
        self.model.w.copy_(params)
        self.model.buffers.copy_(buffers)
        self.model.counts.copy_(state.counts)


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


def _spread(name: str, accuracies: Tensor) -> dict[str, float]:
    """The mean over clients and the mean of the worst tenth, without clients that have no test set."""
    sound = accuracies[~torch.isnan(accuracies)].sort().values
    if len(sound) == 0:
        return {}
    worst = sound[: max(1, len(sound) // 10)]
    return {f"{name}_accuracy": float(sound.mean()), f"{name}_worst_tenth": float(worst.mean())}
