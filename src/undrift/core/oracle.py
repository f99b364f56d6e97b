"""Losses and gradients of a bound model at any point, on any batch, without a trace in what is trained."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.hooks import RemovableHandle

from undrift.core.vector import Bound, Vector


class Oracle:
    """The gradient of the current batch, and losses and gradients aside from training.

    A call gives the gradient of the data loss and the penalty of the current batch; running statistics move with the
    first call of a step only. `at` and `value` leave statistics, weights and training's random stream as they were.

    Args:
        model: the bound model.
        loss: the mean loss of the model on a batch.
        random: gives a generator for a purpose.
    """

    def __init__(self, model: Bound, loss: Callable[[Any], Tensor], random: Callable[[str], Generator]) -> None:
        self.model, self.loss, self.random = model, loss, random
        self.batch: Any = None
        self.penalty: Callable[[], Tensor | None] | None = None
        self.frozen: Tensor | None = None
        self.seen: dict[str, Any] = {}
        self.losses: list[Tensor] = []
        self.total = torch.zeros((), dtype=model.w.dtype, device=model.w.device)
        self._fresh, self._here = True, model.w
        self._has_buffers = len(model.buffers) + len(model.counts) > 0
        self._aside_g: Vector | None = None
        self._stream: Tensor | None = None
        self._hooks: list[RemovableHandle] = []

    def next(self, batch: Any, active: Tensor | None) -> None:
        """Go on to a batch, with the coordinates that move; None moves all."""
        self.batch, self._fresh = batch, True
        self.frozen = None if active is None else ~active.to(self.model.w.device)

    def __call__(self, point: Vector) -> Vector:
        """One forward and one backward pass at a point, on the current batch."""
        model = self.model
        saved = None if self._fresh or not self._has_buffers else (model.buffers.clone(), model.counts.clone())
        try:
            self._go(point)
            loss = self.loss(self.batch)
            extra = None if self.penalty is None else self.penalty()
            gradient = model.gradient(loss if extra is None else loss + extra)
        finally:
            self._go(model.w)
        if saved is not None:
            self._restore(*saved)
        if self._fresh:
            self.losses.append(loss.detach())
            self.total += self.losses[-1]
        self._fresh = False
        return gradient if self.frozen is None else gradient.masked_fill_(self.frozen, 0)

    def at(self, point: Vector, batch: Any, of: Callable[[Tensor], Tensor] | None = None) -> Vector:
        """The gradient of `of` the data loss on a batch at a point, in a buffer of its own."""
        if self._aside_g is None:
            self._aside_g = torch.empty_like(self.model.w)
        with self._aside(point), torch.enable_grad():
            loss = self.loss(batch)
            return self.model.gradient(loss if of is None else of(loss), out=self._aside_g)

    def value(self, point: Vector, batch: Any, *, evaluate: bool = False) -> float:
        """The data loss on a batch at a point; `evaluate` puts the model into its evaluation mode."""
        modes = [(part, part.training) for part in self.model.module.modules()] if evaluate else []
        with self._aside(point), torch.no_grad():
            try:
                for part, _ in modes:
                    part.training = False
                return float(self.loss(batch))
            finally:
                for part, training in modes:
                    part.training = training

    def tap(self, layer: str) -> None:
        """Note what a layer gives out in every forward pass from now on, in `seen`; "" is the whole model."""
        modules = dict(self.model.module.named_modules())
        if layer not in modules:
            raise ValueError(f"tap: the model has no layer {layer!r}; it has {', '.join(filter(None, modules))}")

        def note(_: nn.Module, __: Any, output: Any) -> None:
            self.seen[layer] = output

        self._hooks.append(modules[layer].register_forward_hook(note))

    def release(self) -> None:
        """End all notes and forget the penalty, which holds the run that holds this: nothing waits to be collected."""
        self.penalty = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self.seen.clear()

    @contextmanager
    def _aside(self, point: Vector) -> Iterator[None]:
        """Stand at a point for a while: where training stands, its statistics and its random stream come back.

        Passes aside draw from one stream of their own, so that the path of the model does not depend on them.
        """
        model, here, outer = self.model, self._here, torch.get_rng_state()
        saved = (model.buffers.clone(), model.counts.clone()) if self._has_buffers else None
        if self._stream is None:
            self._stream = self.random("aside").get_state()
        torch.set_rng_state(self._stream)
        try:
            self._go(point)
            yield
        finally:
            self._go(here)
            if saved is not None:
                self._restore(*saved)
            self._stream = torch.get_rng_state()
            torch.set_rng_state(outer)

    def _go(self, point: Vector) -> None:
        """Make a vector the model's weights."""
        if point is not self._here:
            self.model.place(point)
            self._here = point

    def _restore(self, buffers: Tensor, counts: Tensor) -> None:
        """Put running statistics back; a backward pass still to come does not read them, so it need not know."""
        self.model.buffers.data.copy_(buffers)
        self.model.counts.data.copy_(counts)


@dataclass(eq=False, kw_only=True)
class Probe:
    """What a block may ask of the model and of the data it is given: a client's own, or the server's proxy data.

    Args:
        oracle: losses and gradients.
        random: gives the generator for a purpose.
        epoch: makes one epoch of batches, shuffled by a generator; None if the batches can be read only once.
        histogram: counts the examples of each class; None if only the batches tell.
    """

    oracle: Oracle
    random: Callable[[str], Generator]
    epoch: Callable[[Generator], Iterator[Any]] | None = None
    histogram: Callable[[], Tensor | None] | None = None

    @property
    def module(self) -> nn.Module:
        """The model; inside `penalty` its weights are those of the point where the gradient is taken, else `w`."""
        return self.oracle.model.module

    @property
    def batch(self) -> Any:
        """The batch of the current step."""
        return self.oracle.batch

    @property
    def losses(self) -> list[Tensor]:
        """The data losses of the steps so far, each at the first point its step looked at."""
        return self.oracle.losses

    @property
    def seen(self) -> Mapping[str, Any]:
        """What the layers named by `tap` gave out in the last forward pass, of training or aside."""
        return self.oracle.seen

    def tap(self, layer: str) -> None:
        """Note in `seen`, until the round ends, what a layer gives out in every forward pass; "" is the whole model."""
        self.oracle.tap(layer)

    def data(self, purpose: str) -> Iterator[Any]:
        """One more epoch of the data, in an order of its own for every purpose, the same at every call.

        "batches" is the purpose of training: its first epoch comes again.
        """
        if self.epoch is None:
            raise RuntimeError(
                "data: the batches of this round were given once and cannot be read again; "
                "give a function of the generator that makes one epoch instead of a loader"
            )
        return iter(self.epoch(self.random(purpose)))

    def at(self, point: Vector, batch: Any, of: Callable[[Tensor], Tensor] | None = None) -> Vector:
        """The gradient of the data loss on a batch at a point, without penalty.

        The result is one buffer, overwritten by the next call of `at` only: clone what you keep.

        Args:
            point: where.
            batch: on what, for example `batch` or one of `data`.
            of: if given, the gradient of its result instead; it is handed the data loss after the forward pass.
        """
        return self.oracle.at(point, batch, of)

    def loss(self, point: Vector, batch: Any, *, evaluate: bool = False) -> float:
        """The mean data loss on a batch at a point, with the model as it is trained or in evaluation mode.

        Evaluation mode uses the running statistics of the moment, wherever the point.
        """
        return self.oracle.value(point, batch, evaluate=evaluate)

    def mean_loss(self, point: Vector) -> float:
        """The mean data loss over all data at a point."""
        pairs = [(self.loss(point, batch), self.examples_of(batch)) for batch in self.data("whole")]
        return sum(loss * count for loss, count in pairs) / sum(count for _, count in pairs)

    def mean_gradient(self, point: Vector) -> Vector:
        """The gradient of the mean data loss over all data at a point, a new vector."""
        total, examples = torch.zeros_like(point), 0
        for batch in self.data("whole"):
            count = self.examples_of(batch)
            total.add_(self.at(point, batch), alpha=count)
            examples += count
        return total.div_(examples)

    def labels(self) -> Tensor | None:
        """How many examples of each class there are: the task's own count, or that of the batches' second elements.

        A count of batches ends at the largest label found. None if there are no labels, whole numbers of one axis.
        """
        if self.histogram is not None:
            return self.histogram()
        pairs = (batch if isinstance(batch, tuple | list) else () for batch in self.data("labels"))
        found = [pair[1] if len(pair) > 1 else None for pair in pairs]
        whole = [x for x in found if isinstance(x, Tensor) and x.dim() == 1 and x.dtype == torch.int64]
        return torch.bincount(torch.cat(whole)) if whole and len(whole) == len(found) else None

    @staticmethod
    def examples_of(batch: Any) -> int:
        """How many examples a batch has: the length of its first tensor; one without tensors counts as one."""
        parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else [batch]
        return next((len(x) for x in parts if isinstance(x, Tensor) and x.dim() > 0), 1)
