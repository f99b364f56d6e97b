"""Ditto: a second model that a client trains beside the global one, on the same batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from undrift.core import End, Layout, Needs, Objective, Personalization, Start, Step, Vector
from undrift.core.method.view import View
from undrift.core.model.samples import clip_norm
from undrift.util.naming.ranges import NonNegative, Range, positive


class Model(NamedTuple):
    """A client's own model."""

    v: Vector


@dataclass(frozen=True)
class Ditto(Personalization[None, Model, None, None, Vector]):
    """client:  v <- v - lr (g(v) + lam (v - w0)), w0 the received model;   the global model as without it

    Args:
        lam: strength of the pull towards the received model; 0 trains v alone.
        lr: the rate of v's steps; None takes that of the global model.
    """

    gradients = 1  # one more, at v
    personalizes = True

    lam: NonNegative = 1.0
    lr: Annotated[float | None, Range("positive and finite, or None", lambda x: x is None or positive(x))] = None

    @property
    def needs(self) -> Needs:
        """A rate that fits SGD."""
        return Needs(
            plain_sgd="" if self.lr else "v takes SGD steps with the rate of the global model; give it a rate: lr=0.1"
        )

    def refuses(self, others: Mapping[str, object]) -> str:
        """A term of the loss that v would not have."""
        return without_penalty(others["objective"], "v")

    def init_client(self, w: Vector) -> Model:
        """The first model received."""
        return Model(w)

    def begin(self, sent: None, kept: Model, start: Start) -> Vector:
        """A copy to train."""
        return kept.v.clone()

    def adjust(self, grad: Vector, state: Vector, step: Step) -> Vector:
        """A step of v; the direction of the global model stays."""
        pull = gradient(state, step.batch, step).add_(state - step.w0, alpha=self.lam)
        state.sub_(pull, alpha=step.lr if self.lr is None else self.lr)
        return grad

    def finish(self, state: Vector, end: End) -> tuple[None, Model]:
        """Keep v."""
        return None, Model(state)

    def personal(self, params: Vector, kept: Model, layout: Layout) -> Vector:
        """Evaluate v."""
        return kept.v


def without_penalty(objective: object, what: str) -> str:
    """Why something is not learned beside an objective whose term only the steps of the model have; "" if it is.

    Args:
        objective: the block of the objective slot.
        what: what is learned by the data loss alone.
    """
    if not isinstance(objective, Objective) or type(objective).penalty is Objective.penalty:
        return ""
    return (
        f"learns {what} by the data loss alone, without the term of objective={type(objective).__name__}; use "
        "personalization:latest, fedavg-ft or fedper, which train one model, or leave the term out"
    )


def gradient(point: Vector, batch: Any, view: View) -> Vector:
    """The gradient of the data loss at a point beside the model, clipped and with weight decay as in the loop."""
    grad = view.gradient_at(point, batch)
    if view.local.clip is not None:
        clip_norm(grad, view.local.clip)
    return grad.add_(point, alpha=view.local.weight_decay)
