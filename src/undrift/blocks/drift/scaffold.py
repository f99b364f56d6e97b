"""SCAFFOLD's control variates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from typing_extensions import TypeVar

from undrift.blocks.spectral.filters import Filtering, Filters
from undrift.core import Correction, End, Needs, ServerView, Spectral, Start, Step, Sums, Synchronous, Vector
from undrift.core.model.samples import clip_norm
from undrift.core.records.types import UpT
from undrift.util.naming.ranges import PositiveShare

HeldT = TypeVar("HeldT", default=None)
"""What a correction holds while a client trains."""


class Variate(NamedTuple):
    """A control variate: an estimate of a gradient."""

    c: Vector


class Variates(NamedTuple):
    """The variates of one client's round and their difference."""

    c: Vector
    c_i: Vector
    difference: Vector


@dataclass(frozen=True)
class KeptVariates(Correction[Variate, Variate, Variate, UpT, HeldT]):
    """A correction by variates, whose norms are reported."""

    reports = ("client_norm", "server_norm")

    def _keep(self, c_i: Vector, end: End) -> Variate:
        """The client's new variate, whose norm is reported."""
        end.report("client_norm", torch.linalg.vector_norm(c_i))
        return Variate(c_i)

    def _move(self, c: Vector, view: ServerView[Variate]) -> Variate:
        """The new global variate, whose norm is reported."""
        view.report("server_norm", float(torch.linalg.vector_norm(c)))
        return Variate(c)


@dataclass(frozen=True)
class _ControlVariates(KeptVariates[UpT, Variates]):
    """client:  g <- g - c_i + c"""

    def begin(self, sent: Variate, kept: Variate, start: Start) -> Variates:
        """The correction is constant in a round."""
        return Variates(sent.c, kept.c, sent.c - kept.c)

    def adjust(self, grad: Vector, state: Variates, step: Step) -> Vector:
        """Replace the client's own mean gradient by the global one."""
        return grad.add_(state.difference)


@dataclass(frozen=True)
class Scaffold(_ControlVariates[None]):
    """client:  g <- g - c_i + c;   at the end c_i <- c_i - c + slope_i
    server:  c <- c + 1/N sum_i (slope_i - c)

    The slope is the mean direction descended, -delta / (steps * lr) without weight decay, so the server derives its
    half from the displacements and a client uploads nothing more. The c in the sum is the one that a client received.
    """

    needs = Needs(
        plain_sgd="its variates are slopes, displacements by rate and steps, which are mean gradients of plain SGD "
        "only; ScaffoldI takes its variates from gradients"
    )
    uses = Sums.SLOPES
    vectorises = True

    def finish(self, state: Variates, end: End) -> tuple[None, Variate]:
        """The new variate: the mean gradient seen on the path."""
        return None, self._keep(end.slope() - state.difference, end)

    def receive(self, delta: Vector, up: None, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        """Move the global variate by the mean change over all clients."""
        c, received = view.state.c, view.mean_sent("c")
        received = c if received is None else received
        return delta, self._move(c + (view.slopes - view.cohort * received) / view.population, view)


@dataclass(frozen=True)
class Scaffnew(_ControlVariates[None]):
    """client:  g <- g - c_i + c;   at the end c_i <- c_i - c - p delta_i / lr
    server:  c <- c + 1/N sum_i (-p delta_i / lr - c)

    h_i = c_i - c is the paper's variate: with all clients in a round h_i <- h_i + p/lr (mean_j w_j - w_i). Weight decay
    is a part of the objective whose gradients the variates are.

    Args:
        p: probability of a communication after a step: one over the mean number of local steps.
    """

    needs = Needs(
        plain_sgd="its variates are displacements by the rate, which are sums of gradients of plain SGD only; "
        "ScaffoldInside takes its variates from gradients"
    )
    uses = Sums.DISPLACEMENTS
    vectorises = True

    p: PositiveShare = 0.1

    def refuses(self, others: Mapping[str, object]) -> str:
        """Uploads that started from models with other rates and variates."""
        schedule = others["schedule"]
        if not isinstance(schedule, Synchronous) or not schedule.overlaps:
            return ""
        return (
            f"derives the server's variate from uploads of one round, found schedule={schedule!r}; use drift:scaffold"
        )

    def finish(self, state: Variates, end: End) -> tuple[None, Variate]:
        """The new variate."""
        return None, self._keep(-self.p / end.lr * end.delta - state.difference, end)

    def receive(self, delta: Vector, up: None, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        """Move the global variate by the mean change over all clients."""
        c, lr = view.state.c, view.setting.local.rate(view.round)
        moved = -self.p / lr * view.displacements - view.cohort * c
        return delta, self._move(c + moved / view.population, view)


@dataclass(frozen=True)
class ScaffoldI(_ControlVariates[Variate]):
    """client:  g <- g - c_i + c;   at the end c_i <- grad F_i(w0), over all its data, without decay or penalty
    server:  c <- c + 1/N sum_i (new c_i - old c_i)

    If gradients are filtered or clipped (`Local.clip`), so is c_i: it would move what the filter removes, or outweigh
    what it corrects.
    """

    needs = Needs(reads=("spectral",))  # the filter on gradients, if there is one
    vectorises = True

    def refuses(self, others: Mapping[str, object]) -> str:
        """What changes gradients by the inputs or the batch of a step."""
        spectral = others["spectral"]
        filters = getattr(type(spectral), "adjust", None)
        if isinstance(spectral, Filters) or filters is Spectral.adjust:
            return ""
        return (
            f"takes its variates over all data, where spectral={type(spectral).__name__} has no inputs of a step; use "
            "drift:scaffold, or a filter such as gradient:high-pass"
        )

    def finish(self, state: Variates, end: End) -> tuple[Variate, Variate]:
        """One pass over the data at the received model; the change travels, which the displacement does not show."""
        gradient = end.mean_gradient_at(end.w0)
        filtering = end.peer("spectral", Filtering)
        if filtering is not None:
            private = gradient - end.share(gradient)
            gradient = end.share(filtering.apply_(gradient, end.layout)) + private
        if end.local.clip is not None:
            gradient = clip_norm(gradient, end.local.clip)
        gradient = end.share(gradient)
        return Variate(gradient - state.c_i), self._keep(gradient, end)

    def receive(self, delta: Vector, up: Variate, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        """Move the global variate by the mean change over all clients."""
        return delta, self._move(view.state.c + up.c / view.population, view)
