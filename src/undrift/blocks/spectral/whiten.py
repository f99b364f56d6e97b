"""Damped whitening: a layer's gradient without most of what the directions common to its inputs put into it."""

from dataclasses import dataclass
from math import ceil, isfinite, sqrt
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from undrift.blocks.spectral.center import center as means_over
from undrift.blocks.spectral.center import remove_means
from undrift.core.method.block import Spectral
from undrift.core.method.view import Start, Step
from undrift.core.model.flat_model import Vector
from undrift.core.model.modules import plain_name

OVER = ("inputs", "positions", "maps")
"""Means that can be removed before."""

PATCHES = 64
"""At most about so many patches of an image are read, evenly spaced."""


class Read(NamedTuple):
    """A layer whose inputs are read.

    Args:
        place: of its weights among the model's tensors.
        inputs: the name by which a step has them.
        layer: the layer.
        size: how many neighbouring inputs lose their mean together; 0 if none is removed.
    """

    place: int
    inputs: str
    layer: nn.Linear | nn.Conv2d
    size: int


@dataclass(frozen=True)
class Whiten(Spectral[None, None, None, None, tuple[Read, ...]]):
    """client:  for every dense and convolutional layer  G <- G P (I + A / (share tr A))^-1

    A is the mean of x x^T over the layer's inputs x in the batch: rows for a dense layer, patches for a convolution. A
    direction with the share s of the energy of the inputs keeps share / (share + s) of its gradient. The mean of the
    inputs is the strongest of these directions: activations are positive, and neighbouring pixels are alike.

    P is the identity, or with `center` removes means from gradients and inputs alike, as the filter `center` does: the
    layer is trained as if its inputs came without them, and A and its energy are those of what is left.

    Biases, norms, recurrent layers, and convolutions with groups or with a padding that is not a number of zeros keep
    their gradients. The inputs are those of the last forward pass, as at the perturbed point of a SAM step.

    Args:
        share: of the inputs' energy, at which a direction keeps half of its gradient; a large one keeps everything.
        center: the means to remove before, "maps", "inputs" or "positions"; None removes none.
    """

    share: float = 0.05
    center: str | None = None

    def __post_init__(self) -> None:
        if not (self.share > 0 and isfinite(self.share)):
            raise ValueError(f"Whiten: share must be above 0, got {self.share}")
        if self.center is not None and self.center not in OVER:
            raise ValueError(f"Whiten: center must be one of {', '.join(OVER)}, or None, got {self.center!r}")

    def begin(self, sent: None, kept: None, start: Start) -> tuple[Read, ...]:
        """Choose the layers and record their inputs."""
        places = {name: index for index, name in enumerate(start.layout.names)}
        sizes = {} if self.center is None else dict(means_over(self.center).sizes(start.layout))
        found: list[Read] = []
        for name, part in start.module.named_modules():
            name = plain_name(name)
            weight = f"{name}.weight" if name else "weight"
            if weight in places and (isinstance(part, nn.Linear) or _plain(part)):
                place = places[weight]
                found.append(Read(place, start.tap(name, inputs=True), part, sizes.get(place, 0)))
        return tuple(found)

    def adjust(self, grad: Vector, state: tuple[Read, ...], step: Step) -> Vector:
        """Damp the gradients of the layers, in place."""
        tensors = step.layout.split(grad)
        for place, name, layer, size in state:
            seen = step.seen.get(name)
            if isinstance(seen, Tensor) and seen.numel():  # a layer that the model does not use has none
                weights = tensors[place].flatten(1)
                inputs = rows(seen.detach(), layer).to(weights.dtype)
                if size:
                    inputs = inputs.clone(memory_format=torch.contiguous_format)
                    remove_means(inputs.view(-1, size), 1)
                    remove_means(weights.view(-1, size), 1)
                weights.copy_(damp_gradient(weights, inputs, self.share))
        return grad


def damp_gradient(grad: Tensor, inputs: Tensor, share: float) -> Tensor:
    """G (I + A / (share tr A))^-1 with A = X^T X / m, by the smaller of two systems of equations.

    Args:
        grad: outputs by inputs.
        inputs: m rows.
        share: of the energy, at which a direction keeps half.
    """
    count, width = inputs.shape
    # X and m share tr A are both divided by the size of the inputs: their squares neither overflow nor vanish.
    inputs = inputs / inputs.abs().amax().clamp_min(torch.finfo(inputs.dtype).tiny)
    strength = (share * inputs.square().sum()).clamp_min(torch.finfo(inputs.dtype).tiny)
    if count <= width:
        system = inputs @ inputs.T
        system.diagonal().add_(strength)
        return grad - (grad @ inputs.T) @ _solve(system, inputs)
    system = inputs.T @ inputs
    system.diagonal().add_(strength)
    return strength * _solve(system, grad.T).T


def rows(inputs: Tensor, layer: nn.Linear | nn.Conv2d) -> Tensor:
    """The inputs of a layer's outputs, one row each: examples and positions of a dense layer, patches of images.

    Args:
        inputs: what the layer took in.
        layer: the layer.
    """
    if isinstance(layer, nn.Linear):
        return inputs.reshape(-1, inputs.shape[-1])
    images = inputs if inputs.dim() == 4 else inputs[None]
    padding, size = layer.padding, layer.kernel_size
    assert not isinstance(padding, str)  # see _plain
    spaces = zip(images.shape[2:], padding, layer.dilation, size, layer.stride, strict=True)
    places = [(side + 2 * pad - reach * (window - 1) - 1) // hop + 1 for side, pad, reach, window, hop in spaces]
    apart = ceil(sqrt(places[0] * places[1] / PATCHES))
    stride = tuple(hop * apart for hop in layer.stride)
    patches = unfold(images, size, layer.dilation, padding, stride)
    return patches.transpose(1, 2).reshape(-1, patches.shape[1])


def _plain(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution of images whose weights are outputs by the elements of a patch."""
    if not isinstance(part, nn.Conv2d) or isinstance(part.padding, str):
        return False
    return part.padding_mode == "zeros" and part.groups == 1


def _solve(system: Tensor, right: Tensor) -> Tensor:
    """Without a check, for which a device would be waited for: the system is positive definite."""
    found: Tensor = torch.linalg.solve_ex(system, right).result
    return found
