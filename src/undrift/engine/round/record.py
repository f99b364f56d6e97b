"""What happened in a round, as numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan, sqrt
from typing import Any

from undrift.core.records.rejection import Rejection
from undrift.engine.round.quarantine import Sentence
from undrift.engine.worker.partial_sum import Visit
from undrift.util.display.html import rounded


@dataclass(frozen=True)
class Record:
    """What happened in a round.

    Args:
        round: the round, from 0.
        visits: the clients whose uploads were accepted, sorted.
        rejections: the clients that were rejected, each with the reason, sorted.
        moved: the norm of the weighted mean of the clients' displacements.
        absent: the clients that sent no reply, each with the reason, sorted.
        reports: what the blocks reported, by column: see `engine.reports`.
        asked: how many other clients downloaded the model to be candidates of the selection.
        quarantined: the clients whose quarantine begins after this round, sorted.
    """

    round: int
    visits: tuple[Visit, ...]
    rejections: tuple[Rejection, ...]
    moved: float = 0.0
    absent: tuple[tuple[int, str], ...] = ()
    reports: Mapping[str, float] = field(default_factory=dict, hash=False)
    asked: int = 0
    quarantined: tuple[Sentence, ...] = ()

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients whose uploads were accepted, sorted."""
        return tuple(visit.client for visit in self.visits)

    @property
    def loss(self) -> float:
        """The mean training loss of these clients; nan if there are none."""
        return sum(visit.loss for visit in self.visits) / len(self.visits) if self.visits else nan

    @property
    def distance(self) -> float:
        """The mean distance of these clients from the model they received (FedSCAM's client drift)."""
        return sum(visit.norm for visit in self.visits) / max(len(self.visits), 1)

    @property
    def norm(self) -> float:
        """The root of the weighted mean of the squared norms of the clients' displacements."""
        weight = sum(visit.weight for visit in self.visits) or 1.0
        return sqrt(sum(visit.weight * visit.norm**2 for visit in self.visits) / weight)

    @property
    def drift(self) -> float:
        """How far clients end from their mean: the root of the weighted mean of ||delta_i - mean delta||^2."""
        return sqrt(max(self.norm**2 - self.moved**2, 0.0))

    def row(self, lr: float) -> dict[str, Any]:
        """The numbers of local training as a flat row; its round counts from 1. Without clients there is no loss.

        Args:
            lr: the learning rate of the round.
        """
        return {
            "round": self.round + 1,
            "clients": len(self.visits),
            "rejected": len(self.rejections),
            "lr": lr,
            **({"train_loss": self.loss} if self.visits else {}),
            "drift": self.drift,
            "client_distance": self.distance,
            "client_norm": self.norm,
            "mean_norm": self.moved,
            "gradients": sum(visit.gradients for visit in self.visits),
            **self.reports,
        }

    def __repr__(self) -> str:
        rejected = f", {len(self.rejections)} rejected" if self.rejections else ""
        return f"Record(round {self.round + 1}: {len(self.visits)} clients{rejected}, loss {rounded(self.loss)})"
