"""Damped whitening: a layer's gradient without most of what the directions common to its inputs put into it."""

from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Annotated, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from undrift.blocks.spectral.center import center as means_over
from undrift.blocks.spectral.center import remove_means
from undrift.core.method.block import Spectral
from undrift.core.method.view import Start, Step
from undrift.core.model.flat_model import Vector
from undrift.core.model.modules import plain_name
from undrift.util.naming.ranges import Count, Range

OVER = ("inputs", "positions", "maps")
"""Means that can be removed before."""

LEAST = 1e-5
"""The smallest share with which a factorisation in single precision is safe."""


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


class Factor(NamedTuple):
    """What damps the gradient of a layer: the smaller of two systems of equations, solved as far as it can be.

    Args:
        rows: L^-1 X, if the inputs X are fewer than the elements of one; otherwise None.
        root: L of the system L L^T = X^T X + strength I otherwise.
        strength: m share tr A, m the number of inputs.
    """

    rows: Tensor | None
    root: Tensor
    strength: Tensor


class Reads(NamedTuple):
    """The layers that are read in a visit, and the factors by their places, which steps replace."""

    layers: tuple[Read, ...]
    factors: dict[int, Factor]


@dataclass(frozen=True)
class Whiten(Spectral[None, None, None, None, Reads]):
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
        every: after how many steps A is taken anew; 1 takes that of every batch.
        patches: of an image a convolution reads at most about so many, evenly spaced.
    """

    share: Annotated[float, Range(f"{LEAST:g} or more and finite", lambda x: LEAST <= x < inf)] = 0.05
    center: str | None = None
    every: Count = 1
    patches: Count = 64

    def __post_init__(self) -> None:
        if self.center is not None and self.center not in OVER:
            raise ValueError(f"Whiten: center must be one of {', '.join(OVER)}, or None, got {self.center!r}")

    def begin(self, sent: None, kept: None, start: Start) -> Reads:
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
        return Reads(tuple(found), {})

    def adjust(self, grad: Vector, state: Reads, step: Step) -> Vector:
        """Damp the gradients of the layers, in place."""
        tensors, due = step.layout.split(grad), step.step % self.every == 0
        for place, name, layer, size in state.layers:
            seen = step.seen.get(name)
            if not (isinstance(seen, Tensor) and seen.numel()):  # a layer that the model does not use has none
                continue
            weights = tensors[place].flatten(1)
            if size:
                remove_means(weights.view(-1, size), 1)
            if due or place not in state.factors:
                inputs = rows(seen.detach(), layer, self.patches).to(weights.dtype)
                if size:
                    inputs = inputs.clone(memory_format=torch.contiguous_format)
                    remove_means(inputs.view(-1, size), 1)
                state.factors[place] = factorise(inputs, self.share)
            damp(weights, state.factors[place])
        return grad


def factorise(inputs: Tensor, share: float) -> Factor:
    """What `damp` needs of the inputs of a layer.

    Args:
        inputs: m rows.
        share: of the energy, at which a direction keeps half.
    """
    count, width = inputs.shape
    tiny = torch.finfo(inputs.dtype).tiny
    # X and m share tr A are both divided by the size of the inputs: their squares neither overflow nor vanish.
    inputs = inputs / inputs.abs().amax().clamp_min(tiny)
    few = count <= width
    system = inputs @ inputs.T if few else inputs.T @ inputs
    strength = (share * system.trace()).clamp_min(tiny)
    system.diagonal().add_(strength)
    # Without a check, for which a device would be waited for: the system is positive definite.
    root = torch.linalg.cholesky_ex(system).L
    if not few:
        return Factor(None, root, strength)
    inverse = torch.linalg.solve_triangular(root, torch.eye(count, dtype=root.dtype, device=root.device), upper=False)
    return Factor(inverse @ inputs, root, strength)


def damp(grad: Tensor, factor: Factor) -> Tensor:
    """G (I + A / (share tr A))^-1 with A = X^T X / m, in place.

    Args:
        grad: outputs by inputs.
        factor: of the inputs X.
    """
    if factor.rows is not None:
        return grad.addmm_(grad @ factor.rows.T, factor.rows, alpha=-1)
    return grad.copy_(torch.cholesky_solve(grad.T, factor.root).T.mul_(factor.strength))


def rows(inputs: Tensor, layer: nn.Linear | nn.Conv2d, patches: int = 64) -> Tensor:
    """The inputs of a layer's outputs, one row each: examples and positions of a dense layer, patches of images.

    Args:
        inputs: what the layer took in.
        layer: the layer.
        patches: of an image, at most about so many.
    """
    if isinstance(layer, nn.Linear):
        return inputs.reshape(-1, inputs.shape[-1])
    images = inputs if inputs.dim() == 4 else inputs[None]
    padding, size = layer.padding, layer.kernel_size
    assert not isinstance(padding, str)  # see _plain
    spaces = zip(images.shape[2:], padding, layer.dilation, size, layer.stride, strict=True)
    places = [(side + 2 * pad - reach * (window - 1) - 1) // hop + 1 for side, pad, reach, window, hop in spaces]
    apart = ceil(sqrt(places[0] * places[1] / patches))
    stride = tuple(hop * apart for hop in layer.stride)
    found = unfold(images, size, layer.dilation, padding, stride)
    return found.transpose(1, 2).reshape(-1, found.shape[1])


def _plain(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution of images whose weights are outputs by the elements of a patch."""
    if not isinstance(part, nn.Conv2d) or isinstance(part.padding, str):
        return False
    return part.padding_mode == "zeros" and part.groups == 1
