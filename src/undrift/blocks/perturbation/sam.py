"""Sharpness-aware perturbations along the client's own gradient."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.core import Perturbation, Start, Step, Vector, unit
from undrift.util.naming.ranges import NonNegative, Share


class _First:
    """The gradient at the unperturbed point, kept from `perturb` to `adjust`."""

    gradient: Vector


@dataclass(frozen=True)
class SAM(Perturbation[None, None, None, None, _First]):
    """client:  offset = rho * g1 / ||g1||, g1 the gradient at w;   g <- (1 - blend) * g1 + blend * g

    Args:
        rho: the radius; 0 switches the perturbation off.
        blend: share of the gradient at the perturbed point; 1 is SAM, 0 ignores the perturbation.
    """

    vectorises = True

    rho: NonNegative = 0.1
    blend: Share = 1.0

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: None, kept: None, start: Start) -> _First:
        """Nothing is known before the first gradient."""
        return _First()

    def perturb(self, state: _First, step: Step) -> Vector | None:
        """The gradient at `w`, scaled to the radius."""
        if self.rho == 0:
            return None
        gradient = step.gradient()
        if self.blend != 1:
            state.gradient = gradient.clone()
        return gradient.mul_(self.rho / (torch.linalg.vector_norm(gradient) + 1e-12))

    def adjust(self, grad: Vector, state: _First, step: Step) -> Vector:
        """The gradient at the perturbed point, or its mixture with the one at `w`."""
        if self.rho == 0 or self.blend == 1:
            return grad
        return grad.mul_(self.blend).add_(state.gradient, alpha=1 - self.blend)


class Scale(NamedTuple):
    """Where ASAM scales by the weight: true on tensors named "weight"."""

    weights: Tensor


@dataclass(frozen=True)
class ASAM(Perturbation[None, None, None, None, Scale]):
    """client:  offset = rho * T^2 g1 / ||T g1||, T = |w| + eta on tensors named "weight", 1 on the others

    Args:
        rho: the radius, measured in units of T; 0 switches the perturbation off.
        eta: what keeps T away from zero.
    """

    vectorises = True

    rho: NonNegative = 0.7
    eta: NonNegative = 0.2

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: None, kept: None, start: Start) -> Scale:
        """Find the tensors to scale."""
        return Scale(start.layout.mask(lambda name, _: "weight" in name).to(start.w0.device))

    def perturb(self, state: Scale, step: Step) -> Vector | None:
        """The gradient at `w`, scaled by the size of each weight."""
        if self.rho == 0:
            return None
        scale = torch.where(state.weights, step.w.abs() + self.eta, torch.ones_like(step.w))
        return scale * unit(scale * step.gradient()) * self.rho
