"""A model as one vector: the layout that names its slices, and the binding that makes a module live in it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, groupby
from math import prod
from typing import Annotated, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from undrift.core.model.buffers import Buffers
from undrift.core.model.modules import load_plain, plain_name

Vector: TypeAlias = Annotated[Tensor, "vector"]
"""A one-dimensional tensor as long as the model's trainable parameters."""


def _module(name: str) -> str:
    """The module of a tensor by its name; a tensor of the model itself stands alone, but for its weight and bias."""
    return name.rpartition(".")[0] or ("" if name in ("weight", "bias") else name)


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
        """Where the tensors of each module lie: those in a row with one name up to the last dot; others stand alone.

        A weight and a bias of the model itself, as those of a bare `nn.Linear`, are one layer, too.
        """
        pairs = zip(self.names, self.sizes, strict=True)
        groups = groupby(pairs, key=lambda pair: _module(pair[0]))
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


_PIECE = 1 << 16  # elements; a few vectors' pieces stay in a processor's cache


def pieces(*vectors: Vector) -> Iterator[tuple[Vector, ...]]:
    """Vectors of one length piece by piece, as views: on a CPU several operations on a piece pass memory once.

    Args:
        vectors: on one device; on another than the CPU each is one piece.
    """
    if vectors[0].numel() <= _PIECE or vectors[0].device.type != "cpu":
        return iter([vectors])
    return zip(*(torch.split(v, _PIECE) for v in vectors), strict=True)


def bytes_of(x: Tensor) -> bytes:
    """The values of a tensor of any dtype as bytes, in the logical order of its axes."""
    flat = x.detach().cpu().contiguous().as_strided((x.numel(),), (1,))  # that of one element, or of none, may be 0
    return flat.view(torch.uint8).numpy().tobytes()


SINGLE = {"mps"}
"""The types of device that have no float64."""


def double(x: Tensor) -> Tensor:
    """A tensor in double precision; on the host if its device has none."""
    return (x.cpu() if x.device.type in SINGLE else x).double()


class Bound(NamedTuple):
    """A module whose parameters and buffers are views of flat vectors, or copies in the module's own form.

    The vector `w` is float32, or float64 if the model has such parameters, and holds every tensor in the logical order
    of its axes. A parameter of another dtype or memory format, bfloat16 or channels-last, has memory of its own, which
    `place` writes from the vector; `own` has it. `g` is the buffer for a gradient that may be overwritten by the next,
    `slopes` its tensors; without it every gradient is a new vector.
    """

    module: nn.Module
    layout: Layout
    parameters: tuple[nn.Parameter, ...]
    w: Vector
    g: Vector | None
    buffers: Tensor
    counts: Tensor
    own: tuple[Tensor | None, ...]
    others: Buffers
    frozen: dict[str, tuple[nn.Parameter, int]]
    slopes: tuple[Tensor, ...] = ()

    @property
    def copies(self) -> bool:
        """Whether some parameters are copies: a change of `w` reaches them through `place`."""
        return any(own is not None for own in self.own)

    def place(self, v: Vector) -> None:
        """Make the parameters views of `v`, without a copy; those that are copies are written from it."""
        for parameter, value, own in zip(self.parameters, self.layout.split(v), self.own, strict=True):
            if own is None:
                parameter.data = value
            else:
                own.copy_(value)

    def load(self, w: Vector, buffers: Tensor, counts: Tensor) -> None:
        """Give the module a model's values, and buffers that do not travel their first ones.

        Args:
            w: the parameters.
            buffers: the running statistics.
            counts: their integer counters.
        """
        self.w.copy_(w)
        if self.copies:
            self.place(self.w)
        self.restore(buffers, counts)
        self.others.reset()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load a state dict into the module and the vectors; what does not travel starts from it, too.

        Args:
            state: every tensor of the model, by the names it has with or without `torch.compile`.
        """
        load_plain(self.module, state)
        for parameter, value in zip(self.parameters, self.layout.split(self.w), strict=True):
            value.copy_(parameter.detach())
        self.others.adopt()
        self.frozen.update({name: (p, p._version) for name, (p, _) in self.frozen.items()})

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Copies of the running statistics and their counters as they are now."""
        self.others.pull()
        return self.buffers.clone(), self.counts.clone()

    def restore(self, buffers: Tensor, counts: Tensor) -> None:
        """Put running statistics back; a backward pass still to come does not read them, so it need not know.

        Args:
            buffers: the running statistics.
            counts: their integer counters.
        """
        self.buffers.data.copy_(buffers)
        self.counts.data.copy_(counts)
        self.others.push()

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
        if wanted and not loss.requires_grad:
            raise ValueError(
                "the loss does not depend on the model's trainable parameters; compute it from the model's outputs, "
                "without detach(), item() or torch.no_grad()"
            )
        if reuse and self.g is not None:
            return self._fill(self.g, loss, wanted)
        slopes = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else ()
        found = {id(p): x for p, x in zip(wanted, slopes, strict=True)}
        return torch.cat([self._flat(found.get(id(p)), p) for p in self.parameters])

    def _fill(self, g: Vector, loss: Tensor, wanted: tuple[nn.Parameter, ...]) -> Vector:
        """The gradient, written into `g`: that of a long tensor during the pass, so that none is there twice."""
        places = {id(p): place for p, place in zip(self.parameters, self.slopes, strict=True)}
        long = [p for p in wanted if p.numel() >= _PIECE and p.dtype == g.dtype]
        hooks = [p.register_hook(places[id(p)].copy_) for p in long]
        try:
            slopes = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else ()
        finally:
            for hook in hooks:
                hook.remove()
        for p, slope in zip(wanted, slopes, strict=True):
            place = places.pop(id(p))
            if slope is None:
                place.zero_()
            elif slope.data_ptr() != place.data_ptr():
                place.copy_(slope)
        for place in places.values():
            place.zero_()
        return g

    def _flat(self, slope: Tensor | None, parameter: nn.Parameter) -> Tensor:
        """One parameter's part of a gradient; zero if there is none, without memory for it."""
        if slope is None:
            return self.w.new_zeros(()).expand(parameter.numel())
        return slope.reshape(-1) if slope.dtype == self.w.dtype else slope.reshape(-1).to(self.w.dtype)

    def check_frozen(self) -> None:
        """Raise an error when a pass wrote to a parameter that is not trained: the next client would see it."""
        for name, (parameter, version) in self.frozen.items():
            if parameter._version != version:
                raise RuntimeError(
                    f"the model changed {name}, a parameter that is not trained, in a pass: it would go from client to "
                    "client; register it as a buffer, with register_buffer"
                )

    def check(self) -> None:
        """Raise an error when the module no longer lives in the vector, or a parameter that is not trained changed."""
        self.check_frozen()
        owned = [p for p in self.module.parameters() if p.requires_grad]
        pieces = zip(self.layout.split(self.w), self.own, strict=True)
        lives = [view if own is None else own for view, own in pieces]
        whole = len(owned) == len(lives) and all(
            p.data_ptr() == x.data_ptr() for p, x in zip(owned, lives, strict=True)
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
    return Layout(tuple(plain_name(name) for name, _ in named), tuple(tuple(p.shape) for _, p in named), owners)


def _find_frozen(module: nn.Module) -> dict[str, tuple[nn.Parameter, int]]:
    """The parameters that are not trained and their versions; not embeddings that keep a norm, which write in place."""
    kept = {id(p) for part in module.modules() if getattr(part, "max_norm", None) for p in part.parameters(False)}
    named = [(name, p) for name, p in module.named_parameters() if not (p.requires_grad or p.is_inference())]
    return {plain_name(name): (p, p._version) for name, p in named if id(p) not in kept}


def bind(module: nn.Module, at: Vector | None = None) -> Bound:
    """Move a module's trainable parameters and its buffers into flat vectors.

    Parameters that do not require a gradient stay where they are: they neither train nor travel. Bind last, once
    per process.

    Args:
        module: the model, compiled or not; all its trainable parameters lie on one device.
        at: a vector to live in instead of one of its own, without a copy: its values become the module's.
    """
    parameters = tuple(p for p in module.parameters() if p.requires_grad)
    if not parameters:
        raise ValueError(
            f"bind: {type(module).__name__} has no trainable parameter; set requires_grad of those to train"
        )
    devices = sorted({str(p.device) for p in parameters})
    if len(devices) > 1:
        raise ValueError(
            f"bind: the trainable parameters lie on several devices, {', '.join(devices)}; "
            f"move the whole model to one of them, for example with model.to({devices[-1]!r})"
        )
    if any(p.is_complex() for p in parameters):
        raise ValueError("bind: a parameter is complex; store it as real numbers, with torch.view_as_real")
    dtype = reduce(torch.promote_types, (p.dtype for p in parameters), torch.float32)
    if at is None:
        w = torch.cat([p.detach().reshape(-1).to(dtype) for p in parameters])
    else:
        w = at.to(parameters[0].device, dtype)
    others = Buffers(module, w.device, dtype)
    own = tuple(None if p.dtype == dtype and p.is_contiguous() else p.data for p in parameters)
    # The gradient buffer is left untouched: a model that only evaluates never takes the memory.
    g, layout = torch.empty_like(w), layout_of(module)
    bound = Bound(
        module,
        layout,
        parameters,
        w,
        g,
        others.floating,
        others.counts,
        own,
        others,
        _find_frozen(module),
        tuple(layout.split(g)),
    )
    bound.place(w)
    return bound
