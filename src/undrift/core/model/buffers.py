"""A module's buffers: those that travel, in two flat vectors, and those that stay as they were.

Floating buffers are running statistics: they travel in one vector, of float32, or of float64 if the model has such
buffers, and are averaged, each rounded to a multiple of 2^-60. Integer buffers are counters: they travel as int64, and
the largest counts; a constant stays what it is. Boolean and complex buffers, those outside the state dict and masks,
floating buffers with an infinity or a number of 1e9 or more, do not travel: every visit starts from their first values.
In the module every buffer keeps its dtype and its memory format.
"""

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

MASK = 1e9
"""A floating buffer with a number of this size is a mask, which cannot be averaged."""

_COUNTERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class _Place(NamedTuple):
    """A buffer that travels: its module and name, its tensor, and its slice of the flat vector in the same shape."""

    owner: nn.Module
    name: str
    own: Tensor
    flat: Tensor


@dataclass
class _Constant:
    """A buffer that does not travel: its module and name, its tensor, and what that held at first.

    The tensor still holds it while its version is the one noted, unless it was written to through `.data`.
    """

    owner: nn.Module
    name: str
    own: Tensor | None
    first: Tensor | None = None
    version: int = 0

    def __post_init__(self) -> None:
        if self.own is not None:
            self.first, self.version = self.own.detach().clone(), self.own._version

    @property
    def fresh(self) -> bool:
        """Whether it is as it was at first."""
        return self.owner._buffers[self.name] is self.own and (self.own is None or self.own._version == self.version)

    def reset(self) -> None:
        """Hold the first values again; a tensor whose elements share memory cannot have been written to."""
        self.owner._buffers[self.name] = self.own
        if self.own is not None and self.first is not None:
            if not any(step == 0 and size > 1 for step, size in zip(self.own.stride(), self.own.shape, strict=True)):
                self.own.data.copy_(self.first)
            self.version = self.own._version


Constants = list[tuple[_Constant, Tensor | None, Tensor | None]]
"""Buffers that do not travel, as they were: the tensor of each and a copy of it; None where it had its first values."""


class Buffers:
    """The buffers of a module: `floating` and `counts` are the flat vectors of those that travel.

    A buffer that is contiguous and has the dtype of its vector becomes a view of it. Others are copied: `push` writes
    them from the vectors, `pull` reads them back.

    Args:
        module: the model; its buffers are replaced by views where that is possible.
        device: where the vectors lie.
        dtype: of the floating vector if the model has no floating buffer.
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        floating, counters, self._constants = _sort_buffers(module)
        dtypes = {buffer.dtype for _, _, buffer in floating}
        dtype = reduce(torch.promote_types, dtypes, torch.float32) if dtypes else dtype
        self.floating, places = _flatten(floating, dtype, device)
        self.counts, others = _flatten(counters, torch.int64, device)
        self._places = places + others

    def __len__(self) -> int:
        """How many buffers travel."""
        return len(self._places)

    def push(self) -> None:
        """Write the flat vectors into the module; a backward pass still to come need not know."""
        for place in self._places:
            if place.own.data_ptr() != place.flat.data_ptr():
                place.own.data.copy_(place.flat)
            place.owner._buffers[place.name] = place.own

    def pull(self) -> None:
        """Read the module's buffers into the flat vectors, also those that a forward pass has replaced."""
        for place in self._places:
            now = place.owner._buffers[place.name]
            if now is not None and (now is not place.own or now.data_ptr() != place.flat.data_ptr()):
                place.flat.data.copy_(now.detach())
            if now is not place.own:
                place.own.data.copy_(place.flat)
                place.owner._buffers[place.name] = place.own

    def reset(self) -> None:
        """Give the buffers that do not travel their first values, so that no client sees what another left."""
        for x in self._constants:
            x.reset()

    def constants(self) -> Constants:
        """The buffers that do not travel as they are now, for `restore`; what never changes is not copied."""
        if not self._constants:
            return []
        present = [(x, None if x.fresh else x.owner._buffers[x.name]) for x in self._constants]
        return [(x, now, None if now is None else now.detach().clone()) for x, now in present]

    def restore(self, saved: Constants) -> None:
        """Make the buffers that do not travel what they were; a backward pass still to come need not know.

        Args:
            saved: what `constants` returned.
        """
        for x, tensor, values in saved:
            if tensor is None or values is None:
                if not x.fresh:
                    x.reset()
                continue
            tensor.data.copy_(values)
            x.owner._buffers[x.name] = tensor

    def adopt(self) -> None:
        """Take the module's present values as the first ones, after a state dict has been loaded."""
        self.pull()
        self._constants = [_Constant(x.owner, x.name, x.owner._buffers[x.name]) for x in self._constants]


_Found = list[tuple[nn.Module, str, Tensor]]


def _sort_buffers(module: nn.Module) -> tuple[_Found, _Found, list[_Constant]]:
    """A module's floating buffers, its counters, and those that do not travel."""
    floating: _Found = []
    counters: _Found = []
    constants: list[_Constant] = []
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            travels = buffer is not None and name not in owner._non_persistent_buffers_set
            if buffer is not None and travels and buffer.is_floating_point() and not _is_mask(buffer):
                floating.append((owner, name, buffer))
            elif buffer is not None and travels and buffer.dtype in _COUNTERS:
                counters.append((owner, name, buffer))
            else:
                constants.append(_Constant(owner, name, buffer))
    return floating, counters, constants


def _is_mask(buffer: Tensor) -> bool:
    """Whether a floating buffer has a number that is not finite or too large to be averaged."""
    return buffer.device.type != "meta" and not bool((buffer.detach().float().abs() < MASK).all())


def _flatten(found: _Found, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, list[_Place]]:
    """Buffers in one vector, and where each of them is; one that several modules share is there once."""
    once = {id(buffer): buffer for _, _, buffer in found}
    away = sorted({str(x.device) for x in once.values() if x.device != device})
    if away:
        raise ValueError(
            f"bind: the parameters lie on {device}, some buffers on {', '.join(away)}; "
            f"move the whole model to one device with model.to({str(device)!r})"
        )
    parts = [buffer.detach().reshape(-1).to(dtype) for buffer in once.values()]
    flat = torch.cat(parts) if parts else torch.empty(0, dtype=dtype, device=device)
    pieces = torch.split(flat, [len(part) for part in parts])
    bound = {}
    for buffer, piece in zip(once.values(), pieces, strict=True):
        view = piece.view(buffer.shape)
        lives = buffer.dtype == dtype and buffer.is_contiguous()
        bound[id(buffer)] = (view, view) if lives else (torch.empty_like(buffer).copy_(buffer.detach()), view)
    places = [_Place(owner, name, *bound[id(buffer)]) for owner, name, buffer in found]
    for place in places:
        place.owner._buffers[place.name] = place.own
    return flat, places
