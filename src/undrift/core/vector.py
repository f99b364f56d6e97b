"""A model as one vector: the layout that names its slices, and the binding that makes a module live in it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from math import prod
from typing import Annotated, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

Vector: TypeAlias = Annotated[Tensor, "vector"]
"""A one-dimensional tensor as long as the model's trainable parameters."""


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's tensors, in the order in which they lie in a vector.

    Args:
        names: the tensors' names.
        shapes: their shapes.
        owners: for each tensor the class name of the module it belongs to, as "Conv2d"; () if that is not known.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    owners: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of each tensor."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)

    @cached_property
    def layers(self) -> tuple[slice, ...]:
        """Where the tensors of each module lie: those in a row with one name up to the last dot; others stand alone."""
        pairs = zip(self.names, self.sizes, strict=True)
        groups = groupby(pairs, key=lambda pair: pair[0].rpartition(".")[0] or pair[0])
        ends = tuple(accumulate(sum(size for _, size in group) for _, group in groups))
        return tuple(slice(start, end) for start, end in zip((0, *ends), ends, strict=False))

    def split(self, v: Vector) -> list[Tensor]:
        """The tensors of `v`, as views."""
        if v.shape != (self.size,):
            raise ValueError(f"expected a vector of length {self.size}, got shape {tuple(v.shape)}")
        pieces = torch.split(v, list(self.sizes))
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def named(self, v: Vector) -> dict[str, Tensor]:
        """The tensors of `v` by name, as views."""
        return dict(zip(self.names, self.split(v), strict=True))

    def map(self, f: Callable[[Tensor], Tensor], v: Vector) -> Vector:
        """A new vector with `f` applied to every tensor of `v`."""
        out = torch.empty_like(v)
        for target, source in zip(self.split(out), self.split(v), strict=True):
            target.copy_(f(source))
        return out

    def mask(self, chosen: Callable[[str, tuple[int, ...]], bool]) -> Tensor:
        """A boolean vector: true on every element of the tensors whose name and shape are chosen."""
        out = torch.zeros(self.size, dtype=torch.bool)
        for name, tensor in self.named(out).items():
            tensor.fill_(chosen(name, tuple(tensor.shape)))
        return out


def unit(v: Tensor) -> Tensor:
    """`v` scaled to length one; zero stays zero."""
    norm: Tensor = torch.linalg.vector_norm(v)
    return v / (norm + 1e-12)


SINGLE = {"mps"}
"""The types of device that have no float64."""


def double(x: Tensor) -> Tensor:
    """A tensor in double precision; on the host if its device has none."""
    return (x.cpu() if x.device.type in SINGLE else x).double()


class Bound(NamedTuple):
    """A module whose parameters and buffers are views of flat vectors.

    `g` is the room for a gradient that may be overwritten by the next; without it every gradient is a new vector.
    """

    module: nn.Module
    layout: Layout
    parameters: tuple[nn.Parameter, ...]
    w: Vector
    g: Vector | None
    buffers: Tensor
    counts: Tensor

    def place(self, v: Vector) -> None:
        """Make the parameters views of `v`, without a copy."""
        for parameter, value in zip(self.parameters, self.layout.split(v), strict=True):
            parameter.data = value

    def moving(self, active: Tensor) -> tuple[nn.Parameter, ...]:
        """The parameters of which an element is active, by a boolean vector: ask once per vector, on the host."""
        parts = zip(self.parameters, self.layout.split(active), strict=True)
        return tuple(p for p, own in parts if bool(own.any()))

    def gradient(self, loss: Tensor, *, reuse: bool = False, wanted: tuple[nn.Parameter, ...] | None = None) -> Vector:
        """The gradient of a loss; zero where the loss does not depend on a parameter.

        Args:
            loss: what to differentiate.
            reuse: write it into `g`, which the next such call overwrites, instead of a new vector.
            wanted: the parameters whose gradient is needed, see `moving`; in the others it is zero, and the backward
                pass ends before them. None wants all.
        """
        wanted = self.parameters if wanted is None else wanted
        slopes = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else ()
        found = {id(p): x for p, x in zip(wanted, slopes, strict=True)}
        zero = self.w.new_zeros(())
        pairs = ((found.get(id(p)), p) for p in self.parameters)
        return torch.cat(
            [zero.expand(p.numel()) if x is None else x.reshape(-1) for x, p in pairs],
            out=self.g if reuse else None,
        )

    def check(self) -> None:
        """Refuse to go on when the module no longer lives in the vector."""
        owned = [p for p in self.module.parameters() if p.requires_grad]
        whole = len(owned) == len(self.parameters) and all(
            p.data_ptr() == w.data_ptr() for p, w in zip(owned, self.layout.split(self.w), strict=True)
        )
        if not whole:
            raise RuntimeError(
                "the model's parameters are no longer views of the flat vector "
                "(did you call .to() or deepcopy after bind()?)"
            )


def layout_of(module: nn.Module) -> Layout:
    """Names, shapes and owners of a module's trainable parameters."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    owners = tuple(type(module.get_submodule(name.rpartition(".")[0])).__name__ for name, _ in named)
    return Layout(tuple(name for name, _ in named), tuple(tuple(p.shape) for _, p in named), owners)


def bind(module: nn.Module, at: Vector | None = None) -> Bound:
    """Move a module's trainable parameters and its buffers into flat vectors.

    Parameters that do not require a gradient stay where they are: they neither train nor travel. Bind last, once
    per process.

    Args:
        module: the model; all its trainable parameters have one dtype and one device.
        at: a vector to live in instead of one of its own, without a copy: its values become the module's.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError(f"bind: {type(module).__name__} has no trainable parameter")
    kinds = {(p.dtype, p.device) for _, p in named}
    if len(kinds) > 1:
        raise ValueError(
            f"bind: all trainable parameters must share one dtype and device, found {sorted(map(str, kinds))}"
        )
    w = torch.cat([p.detach().reshape(-1) for _, p in named]) if at is None else at.to(named[0][1])
    buffers, counts = _bind_buffers(module, w, floating=True), _bind_buffers(module, w, floating=False)
    # The room for a gradient is left untouched: a model that only evaluates never takes the memory.
    bound = Bound(module, layout_of(module), tuple(p for _, p in named), w, torch.empty_like(w), buffers, counts)
    bound.place(w)
    return bound


def _bind_buffers(module: nn.Module, w: Vector, *, floating: bool) -> Tensor:
    """Make the floating (or the integer) buffers of a module views of one tensor, and return that tensor."""
    places = [
        (owner, name, buffer)
        for owner in module.modules()
        for name, buffer in owner.named_buffers(recurse=False)
        if buffer.is_floating_point() == floating and name not in owner._non_persistent_buffers_set
    ]
    dtype = w.dtype if floating else torch.int64
    if not places:
        return torch.empty(0, dtype=dtype, device=w.device)
    flat = torch.cat([buffer.detach().reshape(-1).to(dtype) for _, _, buffer in places])
    start = 0
    for owner, name, buffer in places:
        owner._buffers[name] = flat[start : start + buffer.numel()].view(buffer.shape)
        start += buffer.numel()
    return flat
