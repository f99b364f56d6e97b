"""The kind of block that moves a client's model, in the slot `local_optimizer`."""

from dataclasses import dataclass
from typing import ClassVar

from undrift.core.block import Block
from undrift.core.types import ClientT, SentT, ServerT, StateT, UpT
from undrift.core.vector import Vector
from undrift.core.view import Step


@dataclass(frozen=True)
class LocalOptimizer(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """How a client moves along the gradient of a step: w <- w - lr direction. This base is plain SGD.

    The gradient comes clipped and corrected, with weight decay in it unless it is `decoupled`.
    """

    home = "local_optimizer"
    decoupled: ClassVar[bool] = False
    """Whether weight decay is added to the direction instead of the gradient."""

    @property
    def plain(self) -> bool:
        """Whether every direction is the gradient itself, to the bit: what methods that read slopes need."""
        return type(self) is LocalOptimizer

    def direction(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """What `w` moves against in this step; it may be a vector of the state, which the loop only reads."""
        return grad
