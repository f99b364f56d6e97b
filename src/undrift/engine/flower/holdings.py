"""Which model every node holds, and what the server sends to it: see `undrift.engine.flower.node.received`."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.part_vector import Part, find_part
from undrift.core.model.flat_model import Layout
from undrift.core.records.types import Broadcast
from undrift.core.server import wire
from undrift.engine.flower.node.received import digest_of, digests, keeps_models


class Changed(NamedTuple):
    """What changed since the model that a node holds: positions of tensors, and the digest of the whole model."""

    tensors: list[int]
    digest: str


@dataclass(eq=False)
class Holdings:
    """The models that nodes hold, which their replies state; empty after a restart of the server.

    Args:
        algorithm: the method.
        layout: the names and shapes of the model's tensors.
    """

    algorithm: Algorithm
    layout: Layout
    held: dict[int, int] = field(default_factory=dict)  # node -> the round of its model
    known: dict[int, tuple[str, ...]] = field(default_factory=dict)  # round -> the digests of its tensors

    def part(self, round: int, *, up: bool) -> Part | None:
        """What travels in a round."""
        return find_part(self.algorithm.personalization, self.layout, round, up)

    def note(self, node: int, round: int | None) -> None:
        """Note which model a node holds after its reply; None is no model."""
        self.held.pop(node, None)
        if round is not None:
            self.held[node] = round

    def open(self, broadcast: Broadcast) -> None:
        """Remember a model that is about to be sent, and forget those that no node holds."""
        if keeps_models(self.algorithm, self.layout, broadcast.round):
            self.known = {round: self.known[round] for round in set(self.held.values()) & self.known.keys()}
            self.known[broadcast.round] = digests(self.layout, broadcast.params)

    def changed(self, node: int, round: int) -> Changed | None:
        """What a node lacks of a model; None if it needs all."""
        theirs, ours = self.known.get(self.held.get(node, -1)), self.known.get(round)
        if theirs is None or ours is None:
            return None
        return Changed([i for i, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b], digest_of(ours))

    def tensors(self, broadcast: Broadcast, changed: Changed) -> dict[str, Tensor]:
        """The broadcast for a node that lacks no more than this."""
        tensors = wire.flatten_short(broadcast, self.algorithm, self.part(broadcast.round, up=False))
        pieces = self.layout.split(broadcast.params)
        lacking = [pieces[i].reshape(-1) for i in changed.tensors]
        return tensors | {"params": torch.cat(lacking) if lacking else broadcast.params[:0]}
