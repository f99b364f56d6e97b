"""SCAFFOLD's control variates."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core.block import Correction
from undrift.core.types import Cohort, Run, Summed
from undrift.core.vector import Vector


class Variate(NamedTuple):
    """A control variate: an estimate of a gradient."""

    c: Vector


class _Pair(NamedTuple):
    """The variates of one client's round and their difference."""

    c: Vector
    c_i: Vector
    difference: Vector


@dataclass(frozen=True)
class Scaffold(Correction):
    """client:  g <- g - c_i + c;   at the end c_i <- c_i - c + slope_i
    server:  c <- c + 1/N sum_i (slope_i - c)

    The slope is the mean direction descended, -delta / (steps * lr) without weight decay, so the server derives its
    half from the displacements and a client uploads nothing more.
    """

    Server = Client = Sent = Variate
    uses = frozenset({"slope"})

    def init_server(self, w: Vector) -> Variate:
        """Zero."""
        return Variate(torch.zeros_like(w))

    def init_client(self, w: Vector) -> Variate:
        """Zero."""
        return Variate(torch.zeros_like(w))

    def send(self, server: Variate) -> Variate:
        """The global variate."""
        return server

    def begin(self, sent: Variate, kept: Variate, run: Run) -> _Pair:
        """The correction is constant in a round."""
        return _Pair(sent.c, kept.c, sent.c - kept.c)

    def correct(self, grad: Vector, local: _Pair, run: Run) -> Vector:
        """Replace the client's own mean gradient by the global one."""
        return grad.add_(local.difference)

    def finish(self, local: _Pair, run: Run) -> tuple[None, Variate]:
        """The new variate: the mean gradient seen on the path."""
        return None, Variate(run.slope() - local.difference)

    def receive(self, server: Variate, total: Summed, up: None, cohort: Cohort) -> Variate:
        """Move the global variate by the mean change over all clients."""
        assert total.slope is not None
        return Variate(server.c + (total.slope - cohort.size * server.c) / cohort.population)
