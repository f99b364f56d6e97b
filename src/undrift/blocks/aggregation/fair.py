"""q-FedAvg's weights: the worse a client is served, the more it counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core import End, Needs, ServerView, Start, Summing, Upload, Vector
from undrift.core.model.flat_model import double
from undrift.util.naming.ranges import NonNegative


class Fair(NamedTuple):
    """A client's weight and its share of the denominator."""

    weight: float
    h: float


@dataclass(frozen=True)
class QFair(Summing[None, None, None, Fair, float]):
    """client:  F_i = the loss at the received model over all its data, plus 1e-10
    server:  delta = sum_i F_i^q delta_i / sum_i (F_i^q + q F_i^(q-1) ||delta_i||^2 / lr)

    Args:
        q: how much worse losses count for more; 0 gives equal weights.
    """

    reports = ("weight",)

    q: NonNegative = 1.0

    @property
    def needs(self) -> Needs:
        """Displacements that are gradients, if losses weigh."""
        reason = "it takes displacements by the rate for gradients, which they are for plain SGD only"
        return Needs(plain_sgd=reason if self.q else "")

    def begin(self, sent: None, kept: None, start: Start) -> float:
        """The loss before training."""
        return start.mean_loss_at(start.w0) + 1e-10

    def finish(self, state: float, end: End) -> tuple[Fair, None]:
        """The weight, and the local bound on the curvature of the objective times the learning rate."""
        # In tensors an overflow is an infinity, which the gate rejects, and no error that ends the run.
        loss = torch.tensor(state, dtype=torch.float64)
        weight, square = loss**self.q, double(end.delta).square().sum().cpu()
        return Fair(float(weight), float(weight + self.q * loss ** (self.q - 1) * square / end.lr)), None

    def weigh(self, upload: Upload, up: Fair, age: int) -> float:
        """The loss to the power q."""
        return up.weight

    def check(self, up: Fair, examples: int, weights: Mapping[str, float]) -> None:
        """The share of the denominator is the weight or more: no step is longer than the longest displacement."""
        weight = weights[""]
        if abs(up.weight - weight) > 1e-5 * weight or not up.h >= weight * (1 - 1e-5):
            raise ValueError(f"QFair: {up} does not fit the weight {weight:.6g}")

    def mean(self, up: Fair, view: ServerView[None]) -> Vector:
        """A step as long as the bound allows."""
        return view.weighted / (up.h or 1.0)
