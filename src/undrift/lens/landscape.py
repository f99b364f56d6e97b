"""The loss as a function of a flat vector: its value, gradient and curvature anywhere, and its surface."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from undrift.core.model.flat_model import Vector, bind, double
from undrift.core.model.random import derive
from undrift.core.records.place import Place

Array: TypeAlias = NDArray[np.float64]


class EmpiricalLoss:
    """The mean loss of a model over all examples of some batches, in evaluation mode.

    It works on a copy: the model's weights and mode do not change, and it may continue training.

    Args:
        module: the model; `w` holds its trainable parameters as they are now.
        loss: the mean loss of a model on a batch, for example the `loss` of a task.
        batches: the data; batches are weighted by their number of examples.
        sizes: the number of examples in each batch; None uses the length of its first tensor.
        dtype: the precision to compute in, for example torch.float64; None keeps the model's.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[nn.Module, Any], Tensor],
        batches: Iterable[Any],
        *,
        sizes: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        copied = deepcopy(module).eval()
        self.model = bind(copied if dtype is None else copied.to(dtype))
        self.layout, self.w, self.loss = self.model.layout, self.model.w, loss
        place = Place(self.w.device)
        self.batches = [place.to(batch if dtype is None else _cast(batch, dtype)) for batch in batches]
        counts = [_examples(batch) for batch in self.batches] if sizes is None else list(sizes)
        if not counts or min(counts) < 1 or len(counts) != len(self.batches):
            raise ValueError(
                f"EmpiricalLoss: every batch must have one example or more, got {len(self.batches)} batches of {counts}"
            )
        self.examples = sum(counts)
        self._shares = [count / self.examples for count in counts]

    def value(self, point: Vector | None = None) -> float:
        """The loss at a point; None means `w`."""
        with self._at(self.w if point is None else point), torch.no_grad():
            losses = torch.stack([self.loss(self.model.module, x).reshape(()) for x in self.batches]).tolist()
            return float(sum(share * loss for share, loss in zip(self._shares, losses, strict=True)))

    def gradient(self) -> Vector:
        """The gradient of the loss at `w`."""
        return self._mean(lambda loss: loss)

    def product(self, v: Vector) -> Vector:
        """The Hessian at `w` times `v`: the gradient of the slope along `v`, by two reverse passes.

        Forward-over-reverse is no faster on a CPU, and PyTorch's LSTM does not support it.
        """
        pieces = self.layout.split(v)

        def slope(loss: Tensor) -> Tensor:
            first = torch.autograd.grad(loss, self.model.parameters, create_graph=True, allow_unused=True)
            pairs = zip(first, pieces, strict=True)
            return torch.stack([(x * piece).sum() for x, piece in pairs if x is not None]).sum()

        product = self._mean(slope)
        if not bool(product.isfinite().all()):
            raise ValueError(
                "EmpiricalLoss.product: the Hessian is not finite at these weights; has the model diverged?"
            )
        return product

    def _mean(self, of: Callable[[Tensor], Tensor]) -> Vector:
        """The gradient at `w` of `of` the loss, a mean over all examples; zero where nothing depends on `w`."""
        total = torch.zeros_like(self.w)
        with self._at(self.w), torch.enable_grad():
            for share, batch in zip(self._shares, self.batches, strict=True):
                target = of(self.loss(self.model.module, batch))
                if target.requires_grad:
                    total += share * self.model.gradient(target)
        return total

    @contextmanager
    def _at(self, point: Vector) -> Iterator[None]:
        """Move the model to a point during the block; only attention's math kernel can be differentiated twice."""
        with sdpa_kernel(SDPBackend.MATH):
            self.model.place(point.to(self.w.device))
            try:
                yield
            finally:
                self.model.place(self.w)


@dataclass(frozen=True, eq=False)
class Surface:
    """The loss over a plane through the weights: `loss[i, j]` at w + a[i] first + b[j] second.

    Args:
        a: steps along the first direction; the middle one is 0.
        b: steps along the second.
        loss: the losses; where they overflow, inf or nan.
        norms: lengths of the two directions.
        cosine: of the angle between them.
    """

    a: Array
    b: Array
    loss: Array
    norms: tuple[float, float]
    cosine: float

    @property
    def centre(self) -> float:
        """The loss at the weights."""
        return float(self.loss[len(self.a) // 2, len(self.b) // 2])


def surface(
    objective: EmpiricalLoss, first: Vector, second: Vector, *, extent: float = 1.0, points: int = 41
) -> Surface:
    """The loss on a grid of points x points over [-extent, extent]^2; it costs points^2 evaluations.

    Args:
        objective: the loss; 500 fixed test examples are usual.
        first: a direction, in the units of one step; see `random_directions` and `curvature.top`.
        second: another.
        extent: how many steps to go in each direction.
        points: along each axis; odd, so that the middle point is the weights themselves.
    """
    if not 0 < extent < float("inf"):
        raise ValueError(f"surface: extent must be positive and finite, got {extent}")
    if points < 3 or points % 2 == 0:
        raise ValueError(
            f"surface: points must be odd and 3 or more, so that the weights are the middle point, got {points}"
        )
    plane = torch.stack([first, second]).to(objective.w)
    if plane.shape[1:] != objective.w.shape:
        raise ValueError(
            f"surface: a direction must have {objective.layout.size} elements, got {tuple(plane.shape[1:])}"
        )
    half = points // 2
    steps: Array = np.arange(-half, half + 1, dtype=np.float64) * (extent / half)
    losses = [[objective.value(objective.w + float(a) * plane[0] + float(b) * plane[1]) for b in steps] for a in steps]
    one, two = (float(norm) for norm in torch.linalg.vector_norm(double(plane), dim=1))
    inner = float(double(plane[0]) @ double(plane[1]))
    return Surface(steps, steps, np.array(losses), (one, two), inner / (one * two) if one * two else 0.0)


def surfaces(
    objectives: Mapping[str, EmpiricalLoss],
    directions: Callable[[EmpiricalLoss], Iterable[Vector]],
    *,
    extent: float = 1.0,
    points: int = 41,
) -> dict[str, Surface]:
    """The surfaces of several models on one scale: the same examples, kind of directions and grid.

    Args:
        objectives: name -> the loss of that model.
        directions: returns two directions for a model: `random_directions`, or `lambda o: top(o).vectors`.
        extent: as in `surface`.
        points: as in `surface`.
    """
    counts = {name: objective.examples for name, objective in objectives.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"surfaces: all models must be evaluated on the same examples, got {counts}")
    return {name: surface(own, *directions(own), extent=extent, points=points) for name, own in objectives.items()}


def colour_range(drawn: Iterable[Surface]) -> tuple[float, float]:
    """The lowest and highest finite loss of all surfaces, for one colour scale."""
    losses = np.concatenate([surface.loss.ravel() for surface in drawn])
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        raise ValueError(f"colour_range: none of the {len(losses)} losses is finite; try a smaller extent")
    return float(finite.min()), float(finite.max())


def random_directions(objective: EmpiricalLoss, seed: int = 0) -> tuple[Vector, Vector]:
    """Two Gaussian directions, each filter scaled to the norm of the model's own filter (Li et al. 2018).

    A filter is a slice along the first axis; tensors with one axis (biases, norms) are not moved. Models with the same
    layout share the draw and differ only in the norms, so surfaces of models with different weight scales compare.
    """
    if all(len(shape) < 2 for shape in objective.layout.shapes):
        raise ValueError(
            "random_directions: no tensor of the model has two axes, so there is no filter to scale to; "
            "take the eigenvectors of curvature.top instead"
        )
    draw = torch.Generator().manual_seed(derive(seed, "directions"))
    normal = torch.randn(2, objective.layout.size, generator=draw, dtype=torch.float64).to(objective.w)
    weights = objective.layout.split(objective.w)
    first, second = (
        torch.cat([_filters(x, own) for x, own in zip(objective.layout.split(v), weights, strict=True)]) for v in normal
    )
    return first, second


def _filters(drawn: Tensor, weight: Tensor) -> Tensor:
    """A random tensor whose filters have the norms of a weight's filters, flattened."""
    if weight.dim() < 2:
        return torch.zeros_like(drawn).flatten()
    own, new = (torch.linalg.vector_norm(x.flatten(1), dim=1, keepdim=True) for x in (weight, drawn))
    scaled: Tensor = drawn.flatten(1) * (own / new)
    return scaled.flatten()


def _examples(batch: Any) -> int:
    """How many examples a batch has: the length of its first tensor."""
    first = batch
    while isinstance(first, tuple | list | dict) and first:
        first = next(iter(first.values() if isinstance(first, dict) else first))
    if not isinstance(first, Tensor) or first.dim() == 0:
        raise TypeError(
            f"EmpiricalLoss: a batch must begin with a tensor whose length is its number of examples, "
            f"got {type(batch).__name__}; or give sizes=[...]"
        )
    return len(first)


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    """A batch with its floating tensors in another precision."""
    if isinstance(batch, Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    if isinstance(batch, dict):
        return {name: _cast(part, dtype) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_cast(part, dtype) for part in batch]
        return parts if isinstance(batch, list) else type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return batch
