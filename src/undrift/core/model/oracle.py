"""Losses and gradients of a bound model at any point, on any batch: what the loop owns and blocks see through views."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.hooks import RemovableHandle

from undrift.core.model.buffers import Constants
from undrift.core.model.flat_model import Bound, Vector
from undrift.core.model.modules import eager, plain_name
from undrift.core.model.precision import LossScale, Precision, autocast, full
from undrift.core.model.random import Streams, seed_streams, set_streams, streams


class Oracle:
    """The gradient of the current batch, and losses and gradients beside training.

    `gradient` gives that of the data loss and the penalty of the current batch; running statistics move with the first
    call of a step only. `gradient_at` and `loss_at` leave statistics, weights and training's random stream as they
    were. `reads` tells whether a step may read a number of a tensor on the host.

    Args:
        model: the bound model.
        loss: the mean loss of the model on a batch.
        random: gives a generator for a purpose.
        precision: what the passes compute in; points, gradients and losses are float32 in each case.
    """

    reads = True

    def __init__(
        self,
        model: Bound,
        loss: Callable[[Any], Tensor],
        random: Callable[[str], Generator],
        precision: Precision = "fp32",
    ) -> None:
        self.model, self.loss, self.random, self.precision = model, loss, random, precision
        half = precision == "fp16" or any(p.dtype == torch.float16 for p in model.parameters)
        self.scale = LossScale(model.w.device) if half else None
        self.batch: Any = None
        self.step = 0
        self.penalty: Callable[[], Tensor | None] | None = None
        self.frozen: Tensor | None = None
        self.gradients = 0
        self.seen: dict[str, Any] = {}
        self._trained: dict[str, Any] = {}
        self.losses: list[Tensor] = []
        self.total = torch.zeros((), dtype=model.w.dtype, device=model.w.device)
        self._fresh, self._here = True, model.w
        self._copies = model.copies
        self._has_buffers = len(model.buffers) + len(model.counts) > 0
        self._offset_point: Vector | None = None
        self._stream: Streams | None = None
        self._masks: list[tuple[Tensor, Tensor, tuple[nn.Parameter, ...]]] = []
        self._wanted: tuple[nn.Parameter, ...] | None = None
        self._hooks: list[RemovableHandle] = []

    def next(self, step: int, batch: Any) -> None:
        """Continue with a step and its batch."""
        self.step, self.batch, self._fresh = step, batch, True
        if self.scale is not None:
            self.scale.begin()

    def freeze(self, active: Tensor | None) -> None:
        """Let only some coordinates move in this step; None moves all.

        The last two vectors are kept on the model's device: give the same ones again, and nothing is copied.
        """
        if active is None:
            self.frozen = self._wanted = None
            return
        known = next((kept for kept in self._masks if kept[0] is active), None)
        if known is None:
            known = active, ~active.to(self.model.w.device), self.model.moving(active.cpu())
            self._masks = [*self._masks[-1:], known]
        _, self.frozen, self._wanted = known

    def gradient(self, offset: Vector | None = None) -> Vector:
        """One forward and one backward pass at `w + offset`, on the current batch; `w` itself is not touched."""
        model = self.model
        point = model.w
        if offset is not None:
            if self._offset_point is None:
                self._offset_point = torch.empty_like(model.w)
            point = torch.add(model.w, offset, out=self._offset_point)
        saved = None if self._fresh else self._saved()
        self._trained.clear()
        try:
            self._go(point)
            loss = self._loss(self.batch)
            self._trained = dict(self.seen)
            extra = None if self.penalty is None else self.penalty()
            gradient = self._slope(loss if extra is None else loss + extra, reuse=True, wanted=self._wanted)
            self.gradients += 1
        finally:
            self._go(model.w)
        if saved is not None:
            self._restore(*saved)
        if self._fresh:
            self.losses.append(loss.detach())
            self.total += self.losses[-1]
        self._fresh = False
        return gradient if self.frozen is None else gradient.masked_fill_(self.frozen, 0)

    def recall(self) -> None:
        """Let `seen` have again what the layers gave in the last pass of training, whatever passed beside it since."""
        self.seen.update(self._trained)

    def allowed(self, grad: Vector) -> Vector:
        """The part of a step that is taken: nothing where the model is frozen, or if a gradient was not finite."""
        if self.frozen is not None:
            grad = grad.masked_fill(self.frozen, 0)
        return grad if self.scale is None else torch.where(self.scale.finite, grad, 0.0)

    def gradient_at(self, point: Vector, batch: Any, of: Callable[[Tensor], Tensor] | None = None) -> Vector:
        """The gradient of `of` the data loss on a batch at a point, a new vector on the point's device."""
        with self._beside(point), torch.enable_grad():
            loss = self._loss(batch)
            self.gradients += 1
            return self._slope(loss if of is None else of(loss)).to(point.device)

    def forward_at(self, point: Vector, batch: Any, *, evaluate: bool = False) -> Tensor:
        """The data loss on a batch at a point; `evaluate` puts the model into its evaluation mode."""
        modes = [(part, part.training) for part in self.model.module.modules()] if evaluate else []
        with self._beside(point), torch.no_grad():
            try:
                for part, _ in modes:
                    part.training = False
                return self._loss(batch).detach()
            finally:
                for part, training in modes:
                    part.training = training

    def tap(self, layer: str, *, inputs: bool = False) -> str:
        """Note what a layer gives out, or takes in, in every forward pass from now on; returns its name in `seen`."""
        modules = {plain_name(name): part for name, part in self.model.module.named_modules()}
        if plain_name(layer) not in modules:
            raise ValueError(f"tap: the model has no layer {layer!r}; it has {', '.join(filter(None, modules))}")

        key = f"{layer}:inputs" if inputs else layer

        def note(_: nn.Module, taken: tuple[Any, ...], output: Any = None) -> None:
            value = (taken[0] if taken else None) if inputs else output
            self.seen[key] = full(value) if isinstance(value, Tensor) else value

        hooks = modules[plain_name(layer)]
        self._hooks.append(hooks.register_forward_pre_hook(note) if inputs else hooks.register_forward_hook(note))
        return key

    def release(self) -> None:
        """End all notes and forget the penalty, which holds the view that holds this: nothing waits to be collected.

        The module has the model of the last step.
        """
        self._go(self.model.w)
        self.penalty = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self.seen.clear()
        self._trained.clear()

    @contextmanager
    def _beside(self, point: Vector) -> Iterator[None]:
        """Stand at a point for a while: where training stands, its statistics and its random stream come back.

        Passes beside training draw from one stream of their own, so that the model's path does not depend on them.
        """
        here, device = self._here, self.model.w.device
        outer = streams(device)
        saved = self._saved()
        if self._stream is None:
            seed_streams(device, self.random("aside").initial_seed())  # this name is part of the stream's seed
        else:
            set_streams(device, self._stream)
        try:
            self._go(point.to(device))
            yield
        finally:
            self._go(here)
            self._restore(*saved)
            self._stream = streams(device)
            set_streams(device, outer)

    def _saved(self) -> tuple[tuple[Tensor, Tensor] | None, Constants]:
        """All buffers as they are now."""
        return self.model.statistics() if self._has_buffers else None, self.model.others.constants()

    def _restore(self, statistics: tuple[Tensor, Tensor] | None, others: Constants) -> None:
        """Put all buffers back."""
        if statistics is not None:
            self.model.restore(*statistics)
        self.model.others.restore(others)

    def _go(self, point: Vector) -> None:
        """Make a vector the model's weights; copies of them are written anew, since the vector may have changed."""
        if point is not self._here or self._copies:
            self.model.place(point)
            self._here = point

    def _loss(self, batch: Any) -> Tensor:
        """The loss of a batch, in the precision of the passes; float32 itself."""
        with autocast(self.precision, self.model.w.device):
            if not self._hooks:
                loss = full(self.loss(batch))
            else:
                with eager(self.model.module):
                    loss = full(self.loss(batch))
        return loss if loss.dim() == 0 else _single(loss)

    def _slope(self, loss: Tensor, *, reuse: bool = False, wanted: tuple[nn.Parameter, ...] | None = None) -> Vector:
        """The gradient of a loss, scaled where float16 needs it; one that is then not finite is zero."""
        with autocast("fp32", self.model.w.device):  # a backward pass takes its precisions from the forward pass
            if self.scale is None:
                return self.model.gradient(loss, reuse=reuse, wanted=wanted)
            return self.scale.unscale(self.model.gradient(loss * self.scale.scale, reuse=reuse, wanted=wanted))


def _single(loss: Tensor) -> Tensor:
    """A loss of one element without axes."""
    if loss.numel() != 1:
        raise ValueError(f"loss: it must be one number, the mean over the batch, got the shape {list(loss.shape)}")
    return loss.reshape(())
