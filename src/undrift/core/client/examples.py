"""Gradients that are private for every example: each is clipped, and their sum has noise (DP-SGD)."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from undrift.core.local.settings import Local
from undrift.core.model.flat_model import Bound, Vector
from undrift.core.model.oracle import Oracle

_MOST = 1 << 25  # numbers of the gradients that are in memory at a time


def make_oracle(
    model: Bound, loss: Callable[[Any], Tensor], random: Callable[[str], Generator], local: Local
) -> Oracle:
    """The source of a client's gradients.

    Args:
        model: the bound model.
        loss: the mean loss of the model on a batch.
        random: gives a generator for a purpose.
        local: tells whether each example's gradient is clipped.
    """
    if local.example_clip is None:
        return Oracle(model, loss, random, local.precision)
    return NoisyOracle(model, loss, random, local.example_clip, local.example_noise)


class NoisyOracle(Oracle):
    """g = (sum_i min(1, c / ||g_i||) g_i + noise c n) / B, g_i the gradient of example i, n standard normal.

    B is the size of the batch. All that follows from these gradients is as private as they are. So nothing else of the
    data can be read: losses and gradients beside training, and layers, are refused.

    Args:
        model: the bound model.
        loss: the mean loss of the model on a batch.
        random: gives a generator for a purpose.
        c: the largest norm of an example's gradient.
        noise: the standard deviation of the noise on their sum, in units of c.
    """

    def __init__(
        self, model: Bound, loss: Callable[[Any], Tensor], random: Callable[[str], Generator], c: float, noise: float
    ) -> None:
        super().__init__(model, loss, random)
        self._c, self._noise, self._random = c, noise, random("example noise")
        self._whole = _Loss(model.module, loss)
        named = {id(parameter): name for name, parameter in self._whole.named_parameters()}
        self._names = [named[id(parameter)] for parameter in model.parameters]
        self._noisy = model.w

    def tap(self, layer: str, *, inputs: bool = False) -> str:
        """Refused."""
        raise RuntimeError(f"tap: {_REFUSED}")

    def _beside(self, point: Vector) -> NoReturn:
        raise RuntimeError(f"a loss or gradient beside training: {_REFUSED}")

    def _loss(self, batch: Any) -> Tensor:
        """The mean loss of a batch; the noisy gradient is computed with it."""
        leaves, form = tree_flatten(batch)
        if not all(isinstance(x, Tensor) and x.dim() and len(x) == len(leaves[0]) for x in leaves):
            raise TypeError("example_clip: a batch must consist of tensors whose first axis is that of the examples")
        point = {name: p.detach() for name, p in zip(self._names, self.model.parameters, strict=True)}

        def one(point: dict[str, Tensor], *leaves: Tensor) -> Tensor:
            loss: Tensor = functional_call(
                self._whole, point, (tree_unflatten([x.unsqueeze(0) for x in leaves], form),)
            )
            return loss.reshape(())

        each = vmap(grad_and_value(one), in_dims=(None, *(0 for _ in leaves)), randomness="different")
        total, losses, size = torch.zeros_like(self.model.w), [], len(leaves[0])
        for parts in zip(*(x.split(max(1, _MOST // len(total))) for x in leaves), strict=True):
            slopes, found = each(point, *parts)
            rows = torch.cat([slopes[name].flatten(1) for name in self._names], dim=1)
            lengths = torch.linalg.vector_norm(rows, dim=1)
            factors = torch.where(lengths.isfinite(), (self._c / lengths).clamp(max=1.0), 0.0)
            total += factors.to(rows) @ rows.nan_to_num(0.0, 0.0, 0.0)
            losses.append(found.detach())
        if self._noise:
            drawn = torch.randn(total.shape, generator=self._random, dtype=torch.float64)
            total.add_(drawn.to(total), alpha=self._noise * self._c)
        self._noisy = total.div_(size)
        return torch.cat(losses).mean()

    def _slope(self, loss: Tensor, *, reuse: bool = False, wanted: tuple[nn.Parameter, ...] | None = None) -> Vector:
        return self._noisy


_REFUSED = (
    "it has no noise, so Local(example_clip=...) refuses it; choose a method whose clients need gradients of training "
    "only, such as fedavg, scaffold, feddyn or fedsam"
)


class _Loss(nn.Module):
    """A loss as a module, so that it can be called with other parameters."""

    def __init__(self, module: nn.Module, loss: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.module, self._loss = module, loss

    def forward(self, batch: Any) -> Tensor:
        """The loss of a batch."""
        return self._loss(batch)
