"""FedALA: a client mixes its last model into the received one before it trains, with learned weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from statistics import pstdev
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.aggregation.fair import QFair
from undrift.blocks.aggregation.normalized import Normalized
from undrift.blocks.drift.scaffold import Scaffnew
from undrift.blocks.personalization.ditto import without_penalty
from undrift.blocks.personalization.part import mask
from undrift.core import Array, Block, End, Layout, Personalization, Start, Step, Sums, Vector
from undrift.core.model.samples import examples_of, mean_of
from undrift.util.naming.ranges import Count, NonNegative, PositiveShare, Whole

WINDOW, CAP = 10, 100  # epochs whose losses must agree the first time; the most epochs


class Adapted(NamedTuple):
    """A client's last model, the weights of the received model in its top layers, and how often it took part."""

    w: Vector
    weights: Array
    rounds: int


@dataclass(frozen=True)
class AdaptiveAggregation(Personalization[None, Adapted]):
    """client:  before training, in the top layers, w_i the client's last model and w0 the received one:
             w = w_i + W (w0 - w_i);   W <- W - rate g(w) (w0 - w_i), cut to [0, 1], on a share of its batches
    W starts at 1. When a client takes part a second time, epochs are repeated until their mean losses agree; later
    there is one; the first time there is no last model and nothing to learn.

    Args:
        rate: step size of W; 0 keeps W at 1 and leaves FedAvg.
        sample: share of the client's examples that an epoch uses, in (0, 1].
        layers: how many modules, from the last, are mixed; those below take the received values.
        threshold: standard deviation of the last 10 epochs' losses below which W is learned; 100 epochs at most.
        tuned: epochs in which the last module alone is trained before a client is evaluated; 0 evaluates as it is.
    """

    personalizes = True

    rate: NonNegative = 1.0
    sample: PositiveShare = 0.8
    layers: Count = 1
    threshold: NonNegative = 0.01
    tuned: Whole = 0

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that read the displacement as gradient steps, which it is not alone; a term that W would not have."""
        if not self.rate:
            return ""
        return reads_steps(others, "starts from a mixture") or without_penalty(others["objective"], "W")

    @property
    def tuning(self) -> int:
        """The epochs given."""
        return self.tuned

    def active(self, step: Step) -> Tensor | None:
        """In tuning the last module, whatever number of layers is mixed."""
        return mask("AdaptiveAggregation", "last", step.layout) if step.tuning else None

    def init_client(self, w: Vector) -> Adapted:
        """No weights yet."""
        return Adapted(w, torch.empty(0, dtype=w.dtype), 0)

    def begin(self, sent: None, kept: Adapted, start: Start) -> Adapted:
        """Learn the weights, and take the first step at the mixture."""
        top, weights = _top(self.layers, start.layout), kept.weights.clone()
        if kept.rounds == 0:
            weights = torch.ones_like(start.w0[top])
        else:
            self._learn(weights, kept.w[top], top, start, CAP if kept.rounds == 1 else 1)
        mixed = start.w0.clone()
        mixed[top] = torch.lerp(kept.w[top], start.w0[top], weights)
        start.begin_at(mixed)
        return Adapted(kept.w, weights, kept.rounds + 1)

    def finish(self, state: Adapted, end: End) -> tuple[None, Adapted]:
        """Keep the model and the weights."""
        return None, state._replace(w=end.w.clone())

    def personal(self, params: Vector, kept: Adapted, layout: Layout) -> Vector:
        """The latest global model with the client's last one mixed in by the weights of its last round."""
        if kept.rounds == 0:
            return params
        top, mixed = _top(self.layers, layout), params.clone()
        mixed[top] = torch.lerp(kept.w[top], params[top], kept.weights)
        return mixed

    def _learn(self, weights: Tensor, own: Tensor, top: slice, start: Start, cap: int) -> None:
        """Epochs of descent of the weights, in place."""
        losses: list[float] = []
        while len(losses) < cap and not (len(losses) >= WINDOW and pstdev(losses[-WINDOW:]) < self.threshold):
            losses.append(self._epoch(weights, own, top, start))

    def _epoch(self, weights: Tensor, own: Tensor, top: slice, start: Start) -> float:
        """One epoch of it, the same batches every time, and its mean loss."""
        point, losses, sizes = start.w0.clone(), list[Tensor](), list[int]()
        count = max(1, -(-int(self.sample * start.examples) // start.local.batch_size))

        def note(loss: Tensor) -> Tensor:
            losses.append(loss.detach())
            return loss

        for batch in islice(start.data("adapt"), count):
            point[top] = torch.lerp(own, start.w0[top], weights)
            slope = start.gradient_at(point, batch, of=note)[top] * (start.w0[top] - own)
            weights.sub_(slope, alpha=self.rate).clamp_(0, 1)
            sizes.append(examples_of(batch))
        return mean_of(list(zip(losses, sizes, strict=True)))


def reads_steps(others: Mapping[str, object], what: str) -> str:
    """Why a block that begins beside the received model does not fit others; "" if none reads gradient steps.

    Args:
        others: the other blocks by slot.
        what: how the block begins, for the message.
    """
    for slot, other in others.items():
        reads = isinstance(other, Normalized | Scaffnew) or (isinstance(other, QFair) and other.q > 0)
        if reads or (isinstance(other, Block) and Sums.SLOPES in other.uses):
            return (
                f"{what}, which {slot}={type(other).__name__} would take for gradient steps; use drift:scaffold-i or "
                "drift:feddyn, or weights such as fedlw"
            )
    return ""


def _top(layers: int, layout: Layout) -> slice:
    """Where the last layers lie, all if there are fewer."""
    return slice(layout.layers[-min(layers, len(layout.layers))].start, layout.size)
