"""FedRep's two phases: first the private part of the model, then the shared one."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from undrift.blocks.aggregation.normalized import Normalized
from undrift.blocks.drift import FollowedVariates, Scaffnew, ScaffoldInside
from undrift.blocks.personalization.part import mask, others
from undrift.blocks.personalization.private import Private
from undrift.core import Block, Layout, Needs, Step, Sums
from undrift.util.naming.ranges import Whole

_BY_ALL_STEPS = (Normalized, Scaffnew, ScaffoldInside, FollowedVariates)


@dataclass(frozen=True)
class Alternating(Private):
    """client:  steps 0 to K E_h/(E_h + E_b) - 1 move the private part only, the others the shared part only

    K is the number of local steps, so that with E_h + E_b local epochs the phases are E_h and E_b epochs long; the
    boundary is rounded down, which leaves the shared part one step at least.

    Args:
        names: the private tensors, as in `Private`; () moves nothing in the first phase.
        tuned: epochs in which the private part alone is trained before a client is evaluated; 0 evaluates as it is.
        head_epochs: E_h; 0 never moves the private part.
        body_epochs: E_b; 0 never moves the shared part.
    """

    needs = Needs(plain_sgd="moments would change while their part of the model is frozen")

    head_epochs: Whole = 10
    body_epochs: Whole = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_epochs + self.body_epochs == 0:
            raise ValueError("Alternating: head_epochs and body_epochs must not both be 0: nothing would be trained")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that divide the displacement of the shared part by all steps, of which it takes a part."""
        for slot, other in others.items():
            if isinstance(other, Block) and (Sums.SLOPES in other.uses or isinstance(other, _BY_ALL_STEPS)):
                return (
                    f"moves the shared part in some of the steps only, but {slot}={type(other).__name__} divides its "
                    "displacement by all of them; use drift:scaffold-i or drift:feddyn, or fedper instead of fedrep"
                )
        return super().refuses(others)

    def active(self, step: Step) -> Tensor:
        """The private part in the first phase and in tuning, the shared part in the second phase."""
        if step.tuning:
            return mask("Alternating", self.names, step.layout)
        turn = step.steps * self.head_epochs // (self.head_epochs + self.body_epochs)
        return (mask if step.step < turn else others)("Alternating", self.names, step.layout)


@dataclass(frozen=True)
class HeadFirst(Alternating):
    """client:  steps 0 to K E_h/(E_h + E_b) - 1 move the tensors named only, the others the rest only

    As `Alternating`, but nothing is private: what becomes of the tensors named is up to the aggregation.
    """

    def own(self, layout: Layout) -> None:
        """Nothing."""
