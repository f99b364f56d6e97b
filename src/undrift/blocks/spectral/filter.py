"""What all filters share: which tensors they touch, in which order a tensor is read, and batching by size."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import lru_cache

import torch
from torch import Generator, Tensor

from undrift.blocks.spectral.circulant import is_smooth
from undrift.core.model.flat_model import Layout, Vector
from undrift.util.naming.binding import check_fields, check_subclass_fields


@dataclass(frozen=True, repr=False)
class Filter:
    """A function of a vector, tensor by tensor; it keeps nothing between calls and leaves its input alone.

    Args:
        scope: "all" tensors, "weights" (two axes or more), or a tuple of name patterns ("patch_embed*",).
        order: the axes of a four-axis tensor from slowest to fastest when it is read as a sequence, or "random:SEED"
            for one fixed shuffle per tensor. The order is part of the method: "0123" is (out, in, h, w).
    """

    scope: str | tuple[str, ...] = field(default="all", kw_only=True)
    order: str = field(default="0123", kw_only=True)

    def __init_subclass__(cls) -> None:
        """Let every filter check the kinds of its arguments."""
        super().__init_subclass__()
        check_subclass_fields(cls)

    @check_fields
    def __post_init__(self) -> None:
        name = type(self).__name__
        if isinstance(self.scope, str) and self.scope not in ("all", "weights"):
            raise ValueError(f'{name}: scope must be "all", "weights" or a tuple of name patterns, got {self.scope!r}')
        shuffled = self.order.startswith("random:") and self.order[7:].isdigit()
        if not shuffled and sorted(self.order) != list("0123"):
            raise ValueError(f'{name}: order must be a permutation of "0123" or "random:SEED", got {self.order!r}')

    def __repr__(self) -> str:
        """The call that makes this filter, without the arguments left at their defaults."""
        own = sorted(fields(self), key=lambda f: bool(f.kw_only))
        shown = [f"{f.name}={getattr(self, f.name)!r}" for f in own if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __call__(self, v: Vector, layout: Layout, generator: Generator | None = None) -> Vector:
        """Filter every tensor of `v` that is in scope, those of one size in one batched call."""
        out = v.clone()
        self.apply_(out, layout, generator)
        return out

    def apply_(self, v: Vector, layout: Layout, generator: Generator | None = None) -> None:
        """The same in place.

        Args:
            v: the vector to overwrite.
            layout: the tensors in it.
            generator: the stream of a filter that draws.
        """
        if type(self).__call__ is not Filter.__call__:
            v.copy_(self(v, layout, generator))
            return
        tensors = layout.split(v)
        plain = v.is_contiguous() and self.order == "0123"
        for group in _groups(self, layout):
            if plain and (len(group) == 1 or self.alone(tensors[group[0]].numel())):
                for i in group:
                    self.rows_(tensors[i].view(1, -1), generator)
                continue
            pairs = [_sequence(tensors[i], self.order, i) for i in group]
            rows = torch.stack([sequence for sequence, _ in pairs])
            self.rows_(rows, generator)
            for row, i, (_, restore) in zip(rows, group, pairs, strict=True):
                tensors[i].copy_(restore(row))

    def touches(self, size: int) -> bool:
        """Whether a tensor of so many elements is changed at all."""
        return True

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """The filter on a batch of sequences of one length."""
        raise NotImplementedError

    def rows_(self, rows: Tensor, generator: Generator | None) -> None:
        """The same in place, on contiguous rows."""
        rows.copy_(self.rows(rows, generator))

    def alone(self, size: int) -> bool:
        """Whether tensors of so many elements are filtered one by one, where they are, even if there are several."""
        return False

    def covers(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether a tensor is in scope."""
        if isinstance(self.scope, str):
            return self.scope == "all" or len(shape) >= 2
        return any(fnmatchcase(name, pattern) for pattern in self.scope)


@lru_cache(maxsize=256)
def _groups(filter: Filter, layout: Layout) -> tuple[tuple[int, ...], ...]:
    """The tensors a filter touches, grouped by size."""
    groups: dict[int, list[int]] = {}
    for i, (name, shape, size) in enumerate(zip(layout.names, layout.shapes, layout.sizes, strict=True)):
        if filter.covers(name, shape) and filter.touches(size):
            groups.setdefault(size, []).append(i)
    return tuple(tuple(group) for group in groups.values())


def _sequence(tensor: Tensor, order: str, index: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """A tensor read as a sequence, and the way back."""
    shape = tensor.shape
    if order.startswith("random:"):
        shuffle = _shuffle(int(order[7:]), index, tensor.numel(), tensor.device)
        return tensor.reshape(-1)[shuffle], lambda row: torch.empty_like(row).scatter_(0, shuffle, row).view(shape)
    if order == "0123" or tensor.dim() != 4:
        return tensor.reshape(-1), lambda row: row.view(shape)
    axes = [int(axis) for axis in order]
    turned = tensor.permute(axes)
    back = [axes.index(axis) for axis in range(4)]
    return turned.reshape(-1), lambda row: row.view(turned.shape).permute(back)


@lru_cache(maxsize=256)
def _shuffle(seed: int, index: int, size: int, device: torch.device) -> Tensor:
    """The fixed shuffle of one tensor, the same on every client and device."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed * 1_000_003 + index)).to(device)


def removed_bins(r: float, size: int) -> int:
    """How many of the size // 2 + 1 bins of a real spectrum the share `r` removes."""
    return int(r * (size // 2 + 1) + 1e-9)


_LONG = 8192


def spectrum(rows: Tensor) -> Tensor:
    """The real Fourier transform of each row, in single precision at least.

    MKL's transform of one long row of even length with a larger prime factor than 7 errs by up to 3e-4 in single
    precision, measured up to a million elements, so a CPU takes such lengths in double precision.
    """
    size = rows.shape[-1]
    if rows.device.type == "cpu" and size > _LONG and size % 2 == 0 and not is_smooth(size):
        rows = rows.double()
    elif rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    bins: Tensor = torch.fft.rfft(rows)
    return bins


def signal(bins: Tensor, like: Tensor) -> Tensor:
    """The rows a spectrum came from; the length is given, since the number of bins does not determine it."""
    rows: Tensor = torch.fft.irfft(bins, n=like.shape[-1])
    return rows.to(like.dtype)
