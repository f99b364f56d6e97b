"""FedAvg-FT: a client tunes the global model before it is evaluated."""

from dataclasses import dataclass

from torch import Tensor

from undrift.blocks.personalization.part import Part, check, epochs, mask
from undrift.core.method.block import Personalization
from undrift.core.method.view import Step


@dataclass(frozen=True)
class Tuned(Personalization):
    """client:  nothing in training;   before it is evaluated w <- w - lr g on the tensors named, for some epochs

    Args:
        epochs: how many; 0 evaluates the global model.
        names: what is tuned: "last" for the tensors of the last module, "all", or name patterns; the rest is frozen,
            weight decay included.
    """

    epochs: int = 10
    names: Part = "last"

    def __post_init__(self) -> None:
        epochs("Tuned", "epochs", self.epochs)
        check("Tuned", self.names)

    @property
    def tuning(self) -> int:
        """The epochs given."""
        return self.epochs

    def active(self, step: Step) -> Tensor | None:
        """In tuning the tensors named."""
        return mask("Tuned", self.names, step.layout) if step.tuning else None
