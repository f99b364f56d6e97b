"""FedSOL's perturbation: along the gradient of a proximal loss, to where the client has left the global model."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, normalize, softmax

from undrift.blocks.personalization.part import Part, check, mask
from undrift.core import Perturbation, Start, Step, Vector, unit
from undrift.util.naming.ranges import NonNegative, Positive


@dataclass(frozen=True)
class ProximalAscent(Perturbation):
    """client:  offset = rho U(grad p(w)), none where w = w0
             p(w) = KL(softmax(z(w0)/T) || softmax(z(w)/T)) on the batch, z the scores;  or ||w - w0||^2 / 2
             adaptive:  offset <- offset * |w - w0| element by element, of length one along the first axis of a tensor

    Args:
        rho: the radius; 0 switches the perturbation off.
        adaptive: perturb each element by its share of the distance to the received model.
        temperature: T, of both softmaxes.
        distance: "scores", axis 1 of what the model gives out, or "weights", which needs no further gradient.
        names: what is perturbed: "all", "last" (the head) or a tuple of name patterns.
    """

    rho: NonNegative = 1.0
    adaptive: bool = False
    temperature: Positive = 3.0
    distance: str = "scores"
    names: Part = "all"

    def __post_init__(self) -> None:
        check("ProximalAscent", self.names)
        if self.distance not in ("scores", "weights"):
            raise ValueError(f'ProximalAscent: distance must be "scores" or "weights", got {self.distance!r}')

    @property
    def gradients(self) -> int:
        """One more for a distance of scores, unless the radius is zero."""
        return int(self.rho > 0 and self.distance == "scores")

    def begin(self, sent: None, kept: None, start: Start) -> None:
        """Watch the scores."""
        if self.gradients:
            start.tap("")

    def perturb(self, state: None, step: Step) -> Vector | None:
        """The gradient of the proximal loss, scaled to the radius."""
        # At w0 the gradient of the distance is zero, and rounding must not be scaled up to the radius.
        if self.rho == 0 or (step.step == 0 and torch.equal(step.w, step.w0)):
            return None
        moved = step.w - step.w0
        away = moved if self.distance == "weights" else self._away(step)
        if self.names != "all":
            away = torch.where(mask("ProximalAscent", self.names, step.layout, away.device), away, 0)
        offset = unit(away).mul_(self.rho)
        offset = torch.where(moved.any(), offset, 0)  # a client may stay at w0 or return there
        return offset.mul_(step.layout.map(_shares, moved)) if self.adaptive else offset

    def _away(self, step: Step) -> Vector:
        """The gradient of the distance between the scores at `w` and those of the received model."""
        step.forward_at(step.w0, step.batch)
        target = softmax(self._scores(step) / self.temperature, dim=1)

        def distance(_: Tensor) -> Tensor:
            return kl_div(log_softmax(self._scores(step) / self.temperature, dim=1), target, reduction="batchmean")

        return step.gradient_at(step.w, step.batch, of=distance)

    def _scores(self, step: Step) -> Tensor:
        """What the model gave out in the last forward pass."""
        z = step.seen.get("")
        if not isinstance(z, Tensor) or z.dim() < 2:
            given = f"a tensor of shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
            raise TypeError(
                f"ProximalAscent: the model must return scores, one row per example, got {given}; "
                f'distance="weights" needs none'
            )
        return z


def _shares(moved: Tensor) -> Tensor:
    """The size of every element, of length one along the first axis."""
    return normalize(moved.abs().view(-1, 1) if moved.dim() == 0 else moved.abs(), dim=0).view(moved.shape)
