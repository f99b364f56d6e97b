"""Losses and gradients of a bound model at any point, on any batch: what the loop owns and blocks see through views."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.hooks import RemovableHandle

from undrift.core.random import Streams, seed_streams, set_streams, streams
from undrift.core.vector import Bound, Vector


class Oracle:
    """The gradient of the current batch, and losses and gradients beside training.

    `gradient` gives that of the data loss and the penalty of the current batch; running statistics move with the first
    call of a step only. `gradient_at` and `loss_at` leave statistics, weights and training's random stream as they
    were.

    Args:
        model: the bound model.
        loss: the mean loss of the model on a batch.
        random: gives a generator for a purpose.
    """

    def __init__(self, model: Bound, loss: Callable[[Any], Tensor], random: Callable[[str], Generator]) -> None:
        self.model, self.loss, self.random = model, loss, random
        self.batch: Any = None
        self.step = 0
        self.penalty: Callable[[], Tensor | None] | None = None
        self.frozen: Tensor | None = None
        self.gradients = 0
        self.seen: dict[str, Any] = {}
        self.losses: list[Tensor] = []
        self.total = torch.zeros((), dtype=model.w.dtype, device=model.w.device)
        self._fresh, self._here = True, model.w
        self._has_buffers = len(model.buffers) + len(model.counts) > 0
        self._offset_point: Vector | None = None
        self._stream: Streams | None = None
        self._masks: list[tuple[Tensor, Tensor, tuple[nn.Parameter, ...]]] = []
        self._wanted: tuple[nn.Parameter, ...] | None = None
        self._hooks: list[RemovableHandle] = []

    def next(self, step: int, batch: Any) -> None:
        """Go on to a step and its batch."""
        self.step, self.batch, self._fresh = step, batch, True

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
        saved = None if self._fresh or not self._has_buffers else (model.buffers.clone(), model.counts.clone())
        try:
            self._go(point)
            loss = self.loss(self.batch)
            extra = None if self.penalty is None else self.penalty()
            gradient = model.gradient(loss if extra is None else loss + extra, reuse=True, wanted=self._wanted)
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

    def gradient_at(self, point: Vector, batch: Any, of: Callable[[Tensor], Tensor] | None = None) -> Vector:
        """The gradient of `of` the data loss on a batch at a point, a new vector on the point's device."""
        with self._beside(point), torch.enable_grad():
            loss = self.loss(batch)
            self.gradients += 1
            return self.model.gradient(loss if of is None else of(loss)).to(point.device)

    def forward_at(self, point: Vector, batch: Any, *, evaluate: bool = False) -> Tensor:
        """The data loss on a batch at a point; `evaluate` puts the model into its evaluation mode."""
        modes = [(part, part.training) for part in self.model.module.modules()] if evaluate else []
        with self._beside(point), torch.no_grad():
            try:
                for part, _ in modes:
                    part.training = False
                return self.loss(batch).detach()
            finally:
                for part, training in modes:
                    part.training = training

    def tap(self, layer: str, *, inputs: bool = False) -> None:
        """Note what a layer gives out, or takes in, in every forward pass from now on, in `seen`."""
        modules = dict(self.model.module.named_modules())
        if layer not in modules:
            raise ValueError(f"tap: the model has no layer {layer!r}; it has {', '.join(filter(None, modules))}")

        def note(_: nn.Module, taken: tuple[Any, ...], output: Any = None) -> None:
            self.seen[layer] = (taken[0] if taken else None) if inputs else output

        hooks = modules[layer]
        self._hooks.append(hooks.register_forward_pre_hook(note) if inputs else hooks.register_forward_hook(note))

    def release(self) -> None:
        """End all notes and forget the penalty, which holds the view that holds this: nothing waits to be collected."""
        self.penalty = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self.seen.clear()

    @contextmanager
    def _beside(self, point: Vector) -> Iterator[None]:
        """Stand at a point for a while: where training stands, its statistics and its random stream come back.

        Passes beside training draw from one stream of their own, so that the model's path does not depend on them.
        """
        model, here, device = self.model, self._here, self.model.w.device
        outer = streams(device)
        saved = (model.buffers.clone(), model.counts.clone()) if self._has_buffers else None
        if self._stream is None:
            seed_streams(device, self.random("aside").initial_seed())  # this name is part of the stream's seed
        else:
            set_streams(device, self._stream)
        try:
            self._go(point.to(device))
            yield
        finally:
            self._go(here)
            if saved is not None:
                self._restore(*saved)
            self._stream = streams(device)
            set_streams(device, outer)

    def _go(self, point: Vector) -> None:
        """Make a vector the model's weights."""
        if point is not self._here:
            self.model.place(point)
            self._here = point

    def _restore(self, buffers: Tensor, counts: Tensor) -> None:
        """Put running statistics back; a backward pass still to come does not read them, so it need not know."""
        self.model.buffers.data.copy_(buffers)
        self.model.counts.data.copy_(counts)
