"""FedLoGe's personal models: a head of the client's own on the shared features, and the global one with its lengths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot, softmax

from undrift.blocks.class_features import count_labels, refuses_fixed, refuses_samples, rows_of
from undrift.blocks.objective.contrast import last_linear
from undrift.core import Array, End, Layout, Needs, Personalization, Start, Step, Vector
from undrift.core.model.samples import clip_norm
from undrift.util.naming.ranges import NonNegative

MISSING = -1e4
"""The logit of a class that the client does not have."""


class OwnHead(NamedTuple):
    """A client's head, and 1 for each of its classes, else 0; empty before its first round."""

    values: Array
    present: Array


class _Training(NamedTuple):
    """The name of the features, the head in training as it lies in the model, and the client's classes."""

    features: str
    head: Tensor
    present: Tensor


@dataclass(frozen=True)
class RealignedHead(Personalization[None, OwnHead, None, None, _Training]):
    """client:  (L, l) <- (L, l) - lr gradient of mean_x CE(L [z(x)] + l, y);   w as without it
    evaluation:  rows ||L_c|| A_c + L_c and biases b_c + l_c;   missing classes -1e4
                 rows 1.7 A_c / ||A_c|| and biases b_c for a client that never took part

    z are the features, what the last module (A, b) takes in; [z] has no gradient. L starts as the A that the client
    first receives.

    Args:
        length: of the global head's rows, 1.7, for clients without one of their own; 0 leaves them as they are.
    """

    # class labels in the batches; a rate that fits SGD
    needs = Needs(labels=True, plain_sgd="the client's head takes SGD steps with the rate of the global model")
    personalizes = True

    length: NonNegative = 1.7

    def refuses(self, others: Mapping[str, object]) -> str:
        """Several features per example; a classifier that is fixed."""
        return refuses_samples(others) or refuses_fixed(others)

    def init_client(self, w: Vector) -> OwnHead:
        """No head."""
        return OwnHead(w.new_empty(0), w.new_empty(0))

    def begin(self, sent: None, kept: OwnHead, start: Start) -> _Training:
        """Continue with the client's head, at first the received one."""
        rows, _ = rows_of(start.w0, start.layout, "RealignedHead")
        found = count_labels(start, "RealignedHead")
        present = rows.new_zeros(len(rows))
        present[: len(found)] = (found > 0).to(rows)
        received = start.w0[start.layout.layers[-1]]
        head = kept.values.to(received, copy=True) if len(kept.values) else received.clone()
        return _Training(start.tap(last_linear(start.module), inputs=True), head, present)

    def adjust(self, grad: Vector, state: _Training, step: Step) -> Vector:
        """A step of the client's head; the direction of the global model stays."""
        z, labels = step.seen[state.features].detach(), step.batch[1]
        rows, biases = _split(state.head, len(state.present))
        wrong = softmax(linear(z.to(rows), rows, biases), dim=1) - one_hot(labels, len(biases))
        pull = torch.cat([(wrong.T @ z.to(rows)).flatten(), wrong.sum(dim=0)]).div_(len(labels))
        if step.local.clip is not None:
            clip_norm(pull, step.local.clip)
        state.head.sub_(pull.add_(state.head, alpha=step.local.weight_decay), alpha=step.lr)
        return grad

    def finish(self, state: _Training, end: End) -> tuple[None, OwnHead]:
        """Keep the head."""
        return None, OwnHead(state.head, state.present)

    def personal(self, params: Vector, kept: OwnHead, layout: Layout) -> Vector:
        """The global model with the realigned head."""
        out = params.clone()
        rows, biases = rows_of(out, layout, "RealignedHead")
        if not len(kept.values):
            if self.length:
                rows.mul_(self.length / rows.norm(dim=1, keepdim=True))
            return out
        own, shifts = _split(kept.values.to(rows), len(biases))
        rows.mul_(own.norm(dim=1, keepdim=True)).add_(own)
        biases.add_(shifts)
        missing = kept.present.to(rows) == 0
        rows[missing] = 0
        biases[missing] = MISSING
        return out


def _split(head: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The rows and the biases of a head as it lies in the model."""
    return head[:-classes].view(classes, -1), head[-classes:]
