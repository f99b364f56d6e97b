"""The record of a round: the outcome of its clients, and the numbers of its row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isnan, nan, sqrt
from typing import Any, Self

from undrift.core.method.aggregation import Summing
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.rejection import Rejection
from undrift.core.records.report import Reported, is_declared, sound, spread
from undrift.engine.round.arrivals import TaskOutcome
from undrift.engine.round.quarantine import Sentence
from undrift.engine.round.scheduler import StepPlan
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.util.display.html import short_text


@dataclass(frozen=True)
class Record:
    """The record of a round.

    Args:
        round: the round, from 0.
        visits: the clients whose uploads were accepted, sorted.
        rejections: the clients that were rejected, each with the reason, sorted.
        moved: the norm of the weighted mean of the clients' displacements.
        absent: the clients that sent no reply, each with the reason, sorted.
        reports: what the blocks reported, by column: see `report_columns`.
        asked: how many other clients downloaded the model to be candidates of the selection.
        quarantined: the clients whose quarantine begins after this round, sorted.
        nodes: the node of each client, where clients are on nodes.
        summed: after a secure sum, sums over the accepted clients of their numbers, which `visits` then does not have.
        plan: who began and arrived when, in a run with a clock.
        outcomes: of the tasks that arrived, by their numbers: see `undrift.engine.round.arrivals`.
    """

    round: int
    visits: tuple[Visit, ...]
    rejections: tuple[Rejection, ...]
    moved: float = 0.0
    absent: tuple[tuple[int, str], ...] = ()
    reports: Mapping[str, float] = field(default_factory=dict, hash=False)
    asked: int = 0
    quarantined: tuple[Sentence, ...] = ()
    nodes: Mapping[int, int] = field(default_factory=dict, hash=False)
    summed: Mapping[str, float] = field(default_factory=dict, hash=False)
    plan: StepPlan | None = None
    outcomes: Mapping[int, TaskOutcome] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, round: int, partial: Partial, reported: Reported, **others: Any) -> Self:
        """The record of a round, each of its parts in the order of the clients.

        Args:
            round: the round, from 0.
            partial: the outcome of each client, and the sum of their uploads.
            reported: what the server's blocks reported, see `core.server.step.close`.
            others: further fields of the record.
        """
        visits = tuple(sorted(partial.visits, key=lambda visit: visit.client))
        return cls(
            round,
            visits,
            tuple(sorted(partial.rejections, key=lambda rejection: rejection.client)),
            partial.total.norm(),
            tuple(sorted(partial.absent.items())),
            report_columns(partial.total.algorithm, visits, reported),
            summed=partial.summed,
            **others,
        )

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients whose uploads were accepted, sorted."""
        return tuple(visit.client for visit in self.visits)

    @property
    def loss(self) -> float:
        """The mean training loss of these clients; nan if there are none."""
        if self.summed:
            return self.summed.get("loss", nan) / len(self.visits)
        return sum(visit.loss for visit in self.visits) / len(self.visits) if self.visits else nan

    @property
    def distance(self) -> float:
        """The mean distance of these clients from the model they received (FedSCAM's client drift)."""
        if self.summed:
            return self.summed.get("norm", nan) / len(self.visits)
        return sum(visit.norm for visit in self.visits) / max(len(self.visits), 1)

    @property
    def norm(self) -> float:
        """The root of the weighted mean of the squared norms of the clients' displacements."""
        if self.summed:
            return sqrt(self.summed.get("energy", nan) / (self.summed["weight"] or 1.0))
        weight = sum(visit.weight for visit in self.visits) or 1.0
        return sqrt(sum(visit.weight * visit.norm**2 for visit in self.visits) / weight)

    @property
    def drift(self) -> float:
        """How far clients end from their mean: the root of the weighted mean of ||delta_i - mean delta||^2."""
        return sqrt(max(self.norm**2 - self.moved**2, 0.0))

    def row(self, lr: float) -> dict[str, Any]:
        """The numbers of local training as a flat row; its round counts from 1. What is not known is left out.

        Args:
            lr: the learning rate of the round.
        """
        spread = {"drift": self.drift, "client_distance": self.distance, "client_norm": self.norm}
        return {
            "round": self.round + 1,
            "clients": len(self.visits),
            "rejected": len(self.rejections),
            "lr": lr,
            **({} if isnan(self.loss) else {"train_loss": self.loss}),
            **{name: x for name, x in spread.items() if not isnan(x)},
            "mean_norm": self.moved,
            "gradients": int(self.summed.get("gradients", 0)) or sum(visit.gradients for visit in self.visits),
            **({} if self.plan is None else self.plan.row(self.round)),
            **self.reports,
        }

    def __repr__(self) -> str:
        rejected = f", {len(self.rejections)} rejected" if self.rejections else ""
        return f"Record(round {self.round + 1}: {len(self.visits)} clients{rejected}, loss {short_text(self.loss)})"


def report_columns(algorithm: Algorithm, visits: Sequence[Visit], server: Reported) -> dict[str, float]:
    """What blocks reported, by column: "slot.name" is the mean over the cohort; with "_std", "_min", "_max" its spread.

    What is not declared or not a finite number is left out: the reports of another machine are not trusted.

    Args:
        algorithm: the method, whose blocks declare the names.
        visits: the clients whose uploads were accepted.
        server: "slot.name" -> what the server's blocks reported: one number, or several with a spread.
    """
    blocks = dict(algorithm.slots())
    order = {slot: i for i, slot in enumerate(blocks)}
    values: dict[str, list[float]] = {}
    for visit in visits:
        for name, x in visit.reports.items():
            slot, _, rest = name.partition(".")
            if slot in blocks and is_declared(rest, blocks[slot].reports) and sound(x):
                values.setdefault(name, []).append(x)
    alone = {name: x for name, x in server.items() if isinstance(x, float)}
    values |= {name: list(x) for name, x in server.items() if not isinstance(x, float)}
    rule, whole = algorithm.aggregation, fsum(visit.weight for visit in visits)
    if isinstance(rule, Summing) and "weight" in rule.reports and whole > 0:
        values["aggregation.weight"] = [visit.weight / whole for visit in visits]
    out: dict[str, float] = {}
    for name in sorted({**values, **alone}, key=lambda name: order[name.partition(".")[0]]):
        out |= {name: alone[name]} if name in alone else spread(name, values[name])
    return out
