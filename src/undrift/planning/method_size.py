"""What a method costs in vectors as long as the model, from its blocks' declarations."""

from dataclasses import dataclass

import torch

from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.records.types import Local
from undrift.core.server.total import Total

_DELTA, _OTHER = 5.0, 7.0  # bytes per parameter of a packed sum: of displacements, which end with zero bits; of others


@dataclass(frozen=True)
class MethodSize:
    """What a method costs, as its blocks declare it, in vectors as long as the model.

    Args:
        name: the method.
        down: vectors that a client receives.
        up: vectors that a client uploads.
        client_state: vectors that a client keeps.
        server_state: vectors that the server keeps, the model included.
        gradients: gradients per local step.
        sums: exact sums as long as the model.
        gathers: the server holds every upload.
        remembers: clients keep a state.
    """

    name: str = "fedavg"
    down: int = 1
    up: int = 1
    client_state: int = 0
    server_state: int = 1
    gradients: int = 1
    sums: int = 1
    gathers: bool = False
    remembers: bool = False

    @property
    def packed(self) -> float:
        """Bytes per parameter of all sums on the wire."""
        return (_DELTA + (self.sums - 1) * _OTHER) if self.sums else 0.0


def method_size(algorithm: Algorithm, local: Local | None = None, name: str = "") -> MethodSize:
    """What a method costs, from its blocks' declarations.

    Args:
        algorithm: the method.
        local: the settings of local training: weight decay adds sums to methods that use slopes.
        name: what to call it; empty is its text.
    """
    spent, local = cost(algorithm), local or Local()
    length = 1 << 20  # longer than any array that a block declares
    sizes = Total(algorithm, local, 1.0).expected(torch.empty(length, device="meta"), torch.empty(0))
    return MethodSize(
        name or str(algorithm),
        spent.down,
        spent.up,
        spent.client_state,
        spent.server_state,
        spent.gradients_per_step,
        list(sizes.values()).count(length),
        spent.gathers,
        algorithm.keeps_buffers(local) or not spent.stateless,
    )
