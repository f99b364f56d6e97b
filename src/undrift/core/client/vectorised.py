"""Many small clients at once: the loop of `core/client/loop.py` under vmap, with one row of a matrix for each client.

Below a size a local step is all overhead, and one call for several clients shares it. Blocks begin and finish one
client at a time; only the steps are vectorised. The number of rows and the batch size are fixed, short batches are
padded by examples without weight and free rows by copies, so that a client's result does not depend on who shares the
call.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from undrift.core.client.loop import descend
from undrift.core.local.settings import Local
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Objective
from undrift.core.method.view import Step
from undrift.core.model.flat_model import Bound, Vector
from undrift.core.model.modules import is_compiled
from undrift.core.model.oracle import Oracle
from undrift.core.tasks.task import PerExample, Task

_LANES = 16  # rows begin at multiples of 64 bytes, so that kernels treat all rows alike


_TAIL = 32  # the last elements of a tensor may take another kernel than those before


def row_count(local: Local) -> int:
    """How many rows a group has: one for each client, then so many without a client that these hold every tail.

    Args:
        local: gives `together` and the batch size.
    """
    return local.together + -(-_TAIL // local.batch_size)


def check_together(algorithm: Algorithm, local: Local, task: Task) -> None:
    """Refuse a method, a setting, a model or a task whose clients cannot be trained together.

    Args:
        algorithm: the method.
        local: the settings all clients share; with `together` = 1 everything is accepted.
        task: the model and the data.
    """
    if local.together == 1:
        return
    reason = _why_not(algorithm, local) or _why_not_task(task)
    if reason:
        raise ValueError(f"together = {local.together} is not possible: {reason}; set together to 1")


def _why_not(algorithm: Algorithm, local: Local) -> str:
    """Why a method cannot be vectorised under these settings."""
    for slot, block in algorithm.slots():
        declared = vars(type(block)).get("vectorises", False)  # a derived block has steps of its own
        if slot in _STEPPING and algorithm.fills(slot) and not declared:
            return f"{slot}={type(block).__name__} does not declare that its steps can be vectorised"
    if type(algorithm.objective).penalty is not Objective.penalty:
        return f"objective={type(algorithm.objective).__name__} has a penalty that reads the forward pass"
    if algorithm.personalization.tuning or algorithm.keeps_buffers(local):
        return "clients that keep running statistics or tune their models are trained one after the other"
    if local.step_schedule is not None:
        return "a step_schedule depends on each client's number of steps"
    return "" if local.precision == "fp32" else f"precision {local.precision} is not vectorised"


_STEPPING = ("perturbation", "spectral", "drift", "momentum", "objective", "local_optimizer", "personalization")
"""The slots whose blocks act in a local step."""


def _why_not_task(task: Task) -> str:
    """Why a task's clients cannot be trained together."""
    if not isinstance(task, PerExample):
        return f"{type(task).__name__} has no losses per example (order, gather and losses of undrift.core.PerExample)"
    module = task.model()
    buffers = [name for name, _ in module.named_buffers()]
    random = [
        name for name, part in module.named_modules() if isinstance(part, nn.modules.dropout._DropoutNd) and part.p
    ]
    mixing = [name for name, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    kept = next((p.dtype for p in module.parameters() if p.requires_grad and p.dtype != torch.float32), None)
    if buffers:
        return f"the model has buffers ({buffers[0]}), which a visit may change"
    if mixing:
        return f"the model normalises over the examples of a batch ({mixing[0]}), which would count the padding"
    if random:
        return f"the model draws at random ({random[0]})"
    if kept is not None:
        return f"the model has parameters of {kept}"
    if is_compiled(module):
        return "the model is compiled"
    return task.one_by_one


class _Layers(TorchFunctionMode):
    """Layers in the form that is fastest for many weights at once."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Multiply the weight by the transposed inputs: its gradient then has the weight's own layout."""
        if func is linear and not kwargs and args[0].dim() == 2:
            inputs, weight, *bias = args
            outputs = torch.mm(weight, inputs.t()).t()
            return outputs + bias[0] if bias and bias[0] is not None else outputs
        return func(*args, **(kwargs or {}))


class _Gradient(torch.autograd.Function):
    """The gradient of every row at once, called from inside vmap."""

    @staticmethod
    def forward(point: Vector, rows: "Rows") -> Vector:  # noqa: ARG004  torch calls it with both
        """There is no gradient of a single row."""
        raise RuntimeError("together: a step took its gradient outside of the vectorised call")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is differentiated twice."""

    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004  torch gives it
        in_dims: tuple[int | None, ...],
        point: Tensor,
        rows: "Rows",
    ) -> tuple[Tensor, int]:
        """The gradient of all rows."""
        assert in_dims[0] is not None
        return rows.slopes(point.movedim(in_dims[0], 0)), 0


class Rows(Oracle):
    """The gradients of a group of clients, each a row.

    Args:
        model: the worker's bound model.
        losses: the loss of every example of a batch.
        steps: how many steps each row takes; a row of no client takes as many as the longest.
        batches: for each step the stacked batch and the weights of its examples.
    """

    reads = False

    def __init__(
        self,
        model: Bound,
        losses: Callable[[nn.Module, Any], Tensor],
        steps: Sequence[int],
        batches: Iterator[tuple[Any, Tensor]],
    ) -> None:
        super().__init__(model, lambda batch: batch, _no_random)
        self.each, self.steps, self.batches = losses, list(steps), batches
        self._data: tuple[Any, Tensor] | None = None
        self.total = model.w.new_zeros(len(self.steps))
        self.limit = torch.tensor(self.steps, device=model.w.device)
        self._dead: Tensor | None = None
        self._forward = vmap(self._loss_of_row)
        self._names = [name for name, p in model.module.named_parameters() if p.requires_grad]

    def next(self, step: int, batch: Any) -> None:
        """Continue with a step: the rows whose client has taken its last one no longer move."""
        super().next(step, None)
        self._data = batch
        self._dead = None
        if min(self.steps) <= step:
            self._dead = torch.tensor([count <= step for count in self.steps], device=self.total.device)

    def take(self) -> Iterator[Any]:
        """The stacked batches, one for each step."""
        return self.batches

    def gradient(self, offset: Vector | None = None) -> Vector:
        """The gradient of the current batch at `w + offset`; inside vmap only."""
        point = self.model.w if offset is None else self.model.w + offset
        found: Vector = _Gradient.apply(point, self)  # type: ignore[no-untyped-call]
        return found

    def allowed(self, grad: Vector) -> Vector:
        """The step of a row, nothing after its client's last one; inside vmap only."""
        return grad if self._dead is None else torch.where(self.step < self.limit, grad, 0.0)

    def slopes(self, points: Tensor) -> Tensor:
        """The gradients at a matrix of points, one row each."""
        assert self._data is not None
        layout, count = self.model.layout, len(points)
        pieces = torch.split(points, list(layout.sizes), dim=1)
        leaves = [x.view(count, *shape).requires_grad_() for x, shape in zip(pieces, layout.shapes, strict=True)]
        with torch.enable_grad(), _Layers():
            losses = self._forward(leaves, *self._data)
            found = torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
        self.gradients += 1
        if self._fresh:
            self.losses.append(losses.detach())
            moving = self.losses[-1] if self._dead is None else self.losses[-1].masked_fill(self._dead, 0)
            self.total += moving
        self._fresh = False
        flat = [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]
        return torch.cat([x.reshape(count, -1) for x in flat], dim=1)

    def _loss_of_row(self, leaves: list[Tensor], batch: Any, weights: Tensor) -> Tensor:
        """One client's mean loss on its padded batch."""
        parameters = dict(zip(self._names, leaves, strict=True))

        def call(*args: Any, **named: Any) -> Any:
            return functional_call(self.model.module, parameters, args, named)

        return (self.each(cast(nn.Module, call), batch) * weights).sum()


def descend_together(
    algorithm: Algorithm, rows: Rows, states: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
) -> Tensor:
    """All local steps of a group of clients, from `w0`; the trained models, a row each.

    Args:
        algorithm: the method.
        rows: the gradients of the group.
        states: what the blocks hold for each client, one mapping by slot for each.
        common: the fields of the view that all clients share.
    """
    w0: Tensor = common["w0"]
    count = len(rows.steps)
    width = -(-len(w0) // _LANES) * _LANES
    w = w0.new_empty(count, width)[:, : len(w0)].copy_(w0)
    shared = {id(x) for x in common["shared"]}
    leaves: list[Tensor] = []
    template = {
        slot: _stack(f"{slot}={type(block).__name__}", [s[slot] for s in states], count, shared, leaves)
        for slot, block in algorithm.slots()
        if slot in _STEPPING  # the others wait for `finish`, with states of any kind
    }
    bound, longest = rows.model, max(rows.steps)
    fields = {name: x for name, x in common.items() if name != "shared"}

    def visit(row: Vector, limit: Tensor, *parts: Tensor) -> Tensor:
        rows.limit = limit
        held = {slot: _fill(x, parts) for slot, x in template.items()}
        rows.model = bound._replace(w=row)
        view = Step(**fields, steps=longest, examples=0, random=_no_random, _oracle=rows, _states=held, w=row)
        descend(algorithm, rows, held, view, rows.take())
        return row.new_zeros(())

    try:
        with torch.no_grad():
            vmap(visit)(w, rows.limit, *leaves)
    finally:
        rows.model = bound
        rows.penalty = None
    return w


class _Leaf(int):
    """The place of a stacked tensor."""


def _stack(what: str, values: list[Any], count: int, shared: set[int], leaves: list[Tensor]) -> Any:
    """The states of all clients as one: tensors are stacked, up to a number of rows; the rest must be alike."""
    first = values[0]
    if isinstance(first, Tensor):
        if id(first) in shared and all(x is first for x in values):
            return first
        leaves.append(torch.stack(values + [first] * (count - len(values))))
        return _Leaf(len(leaves) - 1)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        parts = zip(*values, strict=True)
        return type(first)(*(_stack(what, list(x), count, shared, leaves) for x in parts))
    alike = all(x == first for x in values) if first is None or isinstance(first, int | float | str) else False
    if alike or not getattr(first, "__dict__", True):  # an empty object stores what a step keeps for itself
        return first
    raise TypeError(f"{what}: its state of several clients cannot be stacked; set vectorises = False on it")


def _fill(value: Any, parts: Sequence[Tensor]) -> Any:
    """The state with the row's tensors in their places."""
    if isinstance(value, _Leaf):
        return parts[value]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_fill(x, parts) for x in value))
    return value


def _no_random(purpose: str) -> Generator:
    """Steps of several clients have no generator of their own."""
    raise RuntimeError(f"together: a step drew at random ({purpose}); set together to 1")
