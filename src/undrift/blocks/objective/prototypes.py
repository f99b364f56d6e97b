"""FedPAC's pull of features towards the mean features of their class over all clients."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.class_features import ClassRows, features_at, rows_of, sums_by_class
from undrift.blocks.objective.contrast import last_linear
from undrift.core import End, Needs, Objective, ServerView, Start, Step, Vector
from undrift.util.naming.ranges import NonNegative


class _Prototypes(NamedTuple):
    """The name of the features, the prototypes and which classes have one."""

    layer: str
    rows: Tensor
    known: Tensor


@dataclass(frozen=True)
class TowardsPrototypes(Objective[ClassRows, None, ClassRows, ClassRows, _Prototypes | None]):
    """client:  loss <- loss + lam mean_x,j (z_j(x) - c_yj)^2, 0 for a class without a prototype
             at the end upload the sum of z(x) over its x of class y, and their number n_iy
    server:  c_y <- sum_i sum_x z(x) / sum_i n_iy where a client has the class

    z are the features, the input of the last linear layer; those uploaded are of the trained model.

    Args:
        lam: strength of the pull; 0 switches it off.
    """

    needs = Needs(labels=True)

    lam: NonNegative = 1.0

    def __post_init__(self) -> None:
        if self.lam == 0:
            self._leave_out("Server", "Sent", "Up")

    def begin(self, sent: ClassRows | None, kept: None, start: Start) -> _Prototypes | None:
        """Watch the features."""
        if sent is None:
            return None
        return _Prototypes(
            start.tap(last_linear(start.module), inputs=True), *rows_of(sent.v, start.layout, "TowardsPrototypes")
        )

    def penalty(self, state: _Prototypes | None, step: Step) -> Tensor | None:
        """The term at the point where the gradient is taken."""
        if state is None:
            return None
        x, y = step.seen[state.layer].flatten(1), step.batch[1]
        away: Tensor = (x - state.rows[y]) * state.known[y, None]
        return self.lam * away.square().mean()

    def finish(self, state: _Prototypes | None, end: End) -> tuple[ClassRows, None]:
        """The sums of the features of every class."""
        if state is None:
            return ClassRows(torch.zeros_like(end.w)), None  # not uploaded
        up = torch.zeros_like(end.w)
        rows, numbers = rows_of(up, end.layout, "TowardsPrototypes")
        found = sums_by_class(*features_at(end.w, state.layer, end, "prototypes"), len(rows))
        rows.copy_(found[0])
        numbers.copy_(found[1])
        return ClassRows(up), None

    def receive(self, delta: Vector, up: ClassRows | None, view: ServerView[ClassRows]) -> tuple[Vector, ClassRows]:
        """The means of the classes that the cohort has; the others stay."""
        if up is None:
            return delta, view.state
        new = view.state.v.clone()
        (rows, known), (sums, counts) = (rows_of(v, view.layout, "TowardsPrototypes") for v in (new, up.v))
        rows[counts > 0] = (sums / counts[:, None])[counts > 0].to(rows.dtype)
        known[counts > 0] = 1
        return delta, ClassRows(new)
