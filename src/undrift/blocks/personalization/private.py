"""A private part of the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.personalization.part import Part, check, mask
from undrift.core import Array, Block, End, Layout, Personalization, Step, Vector
from undrift.util.naming.ranges import Whole


class Own(NamedTuple):
    """A client's private values; empty before its first round."""

    values: Array


@dataclass(frozen=True)
class Kept(Personalization[None, Own]):
    """client:  what `own` chooses stays with the client; corrections and filters act on the rest only"""

    def own(self, layout: Layout) -> Tensor | None:
        """A boolean vector, true where the model is private; None if nothing is."""
        return None

    def init_client(self, w: Vector) -> Own:
        """Nothing: the first round starts from the common initial values."""
        return Own(torch.empty(0, dtype=w.dtype))

    def refuses(self, others: Mapping[str, object]) -> str:
        """Moments that leave the client; a rule that judges whole models, whose private part is never trained."""
        rule, optimizer = others["aggregation"], others["local_optimizer"]
        if isinstance(optimizer, Block) and optimizer.Up is not None:
            return (
                f"needs moments that the server does not average, found {optimizer!r}: those of the private part stay "
                'with the client; choose "reset" or "keep"'
            )
        if not isinstance(rule, Block) or not rule.needs.proxy:
            return ""
        return (
            f"leaves the server with an untrained private part, but aggregation={type(rule).__name__} tries whole "
            "models on proxy data; use another rule, such as fedawa"
        )

    def shared(self, layout: Layout) -> Tensor | None:
        """Everything that is not private."""
        own = self.own(layout)
        return None if own is None else ~own

    def start(self, params: Vector, kept: Own, layout: Layout) -> Vector:
        """The shared model with the client's own values in it."""
        start, own = params.clone(), self.own(layout)
        if own is not None and len(kept.values):
            start[own] = kept.values
        return start

    def finish(self, state: Own, end: End) -> tuple[None, Own]:
        """Keep the private values."""
        own = self.own(end.layout)
        return None, Own(end.w[:0].clone() if own is None else end.w[own])


@dataclass(frozen=True)
class Private(Kept):
    """client:  the tensors named stay with the client; corrections and filters act on the others only

    Args:
        names: the private tensors: name patterns such as ("head.*",), "last" for those of the last module, "all" for
            purely local training, running statistics included; () shares everything.
        tuned: epochs in which the private part alone is trained before a client is evaluated; 0 evaluates as it is.
    """

    personalizes = True

    names: Part = ()
    tuned: Whole = 0

    def __post_init__(self) -> None:
        check(type(self).__name__, self.names)
        if self.names == "all":
            object.__setattr__(self, "keeps_buffers", True)

    def own(self, layout: Layout) -> Tensor | None:
        """The tensors named."""
        return mask(type(self).__name__, self.names, layout) if self.names else None

    @property
    def tuning(self) -> int:
        """The epochs given."""
        return self.tuned

    def active(self, step: Step) -> Tensor | None:
        """In tuning the private part, nothing if there is none."""
        return mask(type(self).__name__, self.names, step.layout) if step.tuning else None
