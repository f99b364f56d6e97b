"""FedAvg-FT and FedBABU: a client tunes the global model before it is evaluated."""

from dataclasses import dataclass

from torch import Tensor

from undrift.blocks.personalization.part import Part, check, mask, others
from undrift.core import Personalization, Step
from undrift.util.naming.ranges import Whole


@dataclass(frozen=True)
class Tuned(Personalization):
    """client:  nothing in training;   before it is evaluated w <- w - lr g on the tensors named, for some epochs

    Args:
        epochs: how many; 0 evaluates the global model.
        names: what is tuned: "last" for the tensors of the last module, "all", or name patterns; the rest is frozen,
            weight decay included.
    """

    epochs: Whole = 10
    names: Part = "last"

    def __post_init__(self) -> None:
        check("Tuned", self.names)

    @property
    def tuning(self) -> int:
        """The epochs given."""
        return self.epochs

    def active(self, step: Step) -> Tensor | None:
        """In tuning the tensors named."""
        return mask("Tuned", self.names, step.layout) if step.tuning else None


@dataclass(frozen=True)
class FrozenPart(Tuned):
    """client:  in training the tensors in `frozen` stay at their initial values;   tuned as with `Tuned`

    Args:
        epochs: how many epochs of tuning; 0 evaluates the global model.
        names: what is tuned, as in `Tuned`; it may be what training leaves alone.
        frozen: what training leaves alone: "last", "all" or name patterns; () is nothing.
    """

    frozen: Part = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        check("FrozenPart", self.frozen)

    def active(self, step: Step) -> Tensor | None:
        """In training all but what is frozen, in tuning the tensors named."""
        return super().active(step) if step.tuning else others("FrozenPart", self.frozen, step.layout)
