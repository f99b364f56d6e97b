"""FedLin's corrections: the gradients at the model that a round begins with, taken in a round of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.blocks.personalization.private import Private
from undrift.core.method.block import (
    Correction,
    Needs,
    Objective,
    Personalization,
    Perturbation,
    Release,
    Spectral,
)
from undrift.core.method.defaults import Average
from undrift.core.method.schedule import Synchronous
from undrift.core.method.view import End, ServerView, Start, Step, Sums
from undrift.core.model.flat_model import Vector


class MeanGradient(NamedTuple):
    """The mean over clients of the gradients at the model, zero before the first round."""

    c: Vector


class OwnGradient(NamedTuple):
    """A client's gradient at the model, and the round of it, from 1."""

    c: Vector
    round: int


class Correcting(NamedTuple):
    """What a client adds in this round, None while gradients are taken, and what it kept."""

    difference: Vector | None
    kept: OwnGradient


_PLAIN: Mapping[str, tuple[type, ...]] = {
    "spectral": (Spectral,),
    "drift": (Correction,),
    "momentum": (Correction,),
    "release": (Release,),
    "server_optimizer": (Average,),
    "personalization": (Personalization, Private),
}
"""Slots whose blocks would act in the rounds that only take gradients, or on what is taken, and their plain blocks."""

_USE = "use drift:scaffold"
_ELSE = f"would take part; leave it out, or {_USE}"


@dataclass(frozen=True)
class FirstGradients(Perturbation[MeanGradient, OwnGradient, MeanGradient, None, Correcting]):
    """even rounds, from 0:  client:  all gradients of the visit are taken at w0;   c_i <- their mean
                         server:  c <- mean of c_i;   the model stays
    odd rounds:          client:  g <- g - c_i + c;   the server's step is that of the method

    A client whose gradient is not of the round before takes part without a correction.
    """

    needs = Needs(
        plain_sgd="it reads the clients' gradients off their displacements, which only plain SGD allows; "
        "scaffold-inside corrects the gradients inside any local optimizer"
    )
    uses = Sums.SLOPES

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that act on what the rounds of gradients upload, or move something in them."""
        for slot, plain in _PLAIN.items():
            if type(others[slot]) not in plain:
                return f"has a round for gradients before each of training, in which {slot}={others[slot]!r} {_ELSE}"
        objective = others["objective"]
        if isinstance(objective, Objective) and type(objective).adjust is not Objective.adjust:
            return f"takes gradients at the received model, in which the pull of objective={objective!r} {_ELSE}"
        if type(others["schedule"]) is not Synchronous:
            return (
                f"takes gradients and steps of the same clients in turn, with schedule={others['schedule']!r}; {_USE}"
            )
        return ""

    def begin(self, sent: MeanGradient, kept: OwnGradient, start: Start) -> Correcting:
        """The correction is constant in a round."""
        fresh = start.round % 2 == 1 and kept.round == start.round
        return Correcting(sent.c - kept.c if fresh else None, kept)

    def perturb(self, state: Correcting, step: Step) -> Vector | None:
        """Back to where the round began, while gradients are taken."""
        return step.w0 - step.w if step.round % 2 == 0 else None

    def adjust(self, grad: Vector, state: Correcting, step: Step) -> Vector:
        """Replace the client's own gradient at w0 by the mean of all clients."""
        return grad if state.difference is None else grad.add_(state.difference)

    def finish(self, state: Correcting, end: End) -> tuple[None, OwnGradient]:
        """The displacement along gradients of one point is their mean."""
        return None, state.kept if end.round % 2 else OwnGradient(end.slope(), end.round + 1)

    def receive(self, delta: Vector, up: None, view: ServerView[MeanGradient]) -> tuple[Vector, MeanGradient]:
        """The mean gradient, while the model stays; or the step."""
        if view.round % 2:
            return delta, view.state
        return torch.zeros_like(delta), MeanGradient(view.slopes / view.cohort)
