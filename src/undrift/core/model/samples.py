"""Someone's data, a client's or the server's, and losses and gradients on them beside training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Generator, Tensor

from undrift.core.model.flat_model import Vector
from undrift.core.model.oracle import Oracle


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples:
    """Someone's data, and losses and gradients on them at any point; training does not notice.

    Args:
        random: gives a generator for a purpose: the only source of randomness.
    """

    random: Callable[[str], Generator]
    _oracle: Oracle
    _epoch: Callable[[Generator], Iterator[Any]] | None = None

    def data(self, purpose: str) -> Iterator[Any]:
        """One more epoch of the data, in an order of its own for every purpose, the same at every call.

        "batches" is the purpose of training: its first epoch comes again.
        """
        if self._epoch is None:
            raise RuntimeError(
                "data: the batches of this round were given once and cannot be read again; "
                "give a function of the generator that makes one epoch instead of a loader"
            )
        return iter(self._epoch(self.random(purpose)))

    def gradient_at(self, point: Vector, batch: Any, of: Callable[[Tensor], Tensor] | None = None) -> Vector:
        """The gradient of the data loss on a batch at a point, without penalty: a new vector.

        Args:
            point: where.
            batch: on what, for example the current batch or one of `data`.
            of: if given, the gradient of its result instead; it gets the data loss after the forward pass.
        """
        return self._oracle.gradient_at(point, batch, of)

    def loss_at(self, point: Vector, batch: Any, *, evaluate: bool = False) -> float:
        """The mean data loss on a batch at a point, with the model as it is trained or in evaluation mode.

        Evaluation mode uses the running statistics of the moment, wherever the point.
        """
        return float(self._oracle.forward_at(point, batch, evaluate=evaluate))

    def forward_at(self, point: Vector, batch: Any, *, evaluate: bool = False) -> Tensor:
        """The same as a tensor on the model's device: a step that needs no number does not wait for the device.

        Args:
            point: where.
            batch: on what.
            evaluate: whether the model is in its evaluation mode.
        """
        return self._oracle.forward_at(point, batch, evaluate=evaluate)

    def mean_loss_at(self, point: Vector) -> float:
        """The mean data loss over one epoch of `data` at a point: all data but a short last batch that is left out."""
        pairs = [(self.forward_at(point, batch), examples_of(batch)) for batch in self.data("whole")]
        return mean_of(pairs)

    def mean_gradient_at(self, point: Vector) -> Vector:
        """The gradient of the mean data loss over one epoch of `data` at a point, a new vector."""
        total, examples = torch.zeros_like(point), 0
        for batch in self.data("whole"):
            count = examples_of(batch)
            total.add_(self.gradient_at(point, batch), alpha=count)
            examples += count
        return total.div_(examples)


def clip_norm(gradient: Vector, clip: float, *, read: bool = True) -> Vector:
    """A gradient, shortened in place to the norm `clip` if it is longer, also if the norm is beyond its dtype.

    Args:
        gradient: of some data.
        clip: the largest norm.
        read: whether a number may be read; without it, as under vmap, a gradient takes two more passes.
    """
    norm = torch.linalg.vector_norm(gradient)
    factor = clip / norm
    if not (read and gradient.device.type == "cpu") or float(norm) == inf:
        largest = torch.linalg.vector_norm(gradient, inf)
        factor = torch.where(norm == inf, clip / largest / torch.linalg.vector_norm(gradient / largest), factor)
    return gradient.mul_(factor.clamp(max=1.0))


def mean_of(pairs: Sequence[tuple[Tensor, int]]) -> float:
    """The mean of losses by the examples they belong to, read from the device at once.

    Args:
        pairs: each loss, a tensor without axes, and how many examples it is the mean of.
    """
    losses = torch.stack([loss for loss, _ in pairs]).tolist()
    whole = sum(loss * count for loss, (_, count) in zip(losses, pairs, strict=True))
    return float(whole) / sum(count for _, count in pairs)


def weighted_sum(losses: Sequence[Tensor], weights: Sequence[float]) -> float:
    """The sum of losses times weights, one after the other in double precision, read from the device at once.

    Args:
        losses: tensors without axes, one at least.
        weights: of each.
    """
    total = 0.0
    for loss, weight in zip(torch.stack(list(losses)).tolist(), weights, strict=True):
        total += weight * loss
    return total


def examples_of(batch: Any) -> int:
    """How many examples a batch has: the length of its first tensor; one without tensors counts as one.

    If only what it contains has tensors, as dicts of inputs and targets, it is the length of the first of those; but
    lists of one length whose tensors have several, as images and boxes, have an entry for each example.
    """
    parts = _parts(batch)
    own = next((len(x) for x in parts if isinstance(x, Tensor) and x.dim() > 0), None)
    if own is not None:
        return own
    lengths = _lengths(parts)
    listed = {len(x) for x in parts if isinstance(x, tuple | list)}
    return listed.pop() if len(set(lengths)) > 1 and len(listed) == 1 else next(iter(lengths), 1)


def _parts(batch: Any) -> list[Any]:
    """What a batch consists of."""
    return list(batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else [batch])


def _lengths(parts: list[Any]) -> list[int]:
    """The lengths of all tensors in some parts."""
    tensors = [len(x) for x in parts if isinstance(x, Tensor) and x.dim() > 0]
    inner = (_lengths(_parts(x)) for x in parts if isinstance(x, tuple | list | Mapping))
    return tensors + [length for lengths in inner for length in lengths]
