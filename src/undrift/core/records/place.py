"""Where a worker computes: a device, and the one way there and back.

The server's state, broadcasts, checkpoints, stored states and messages are on the host. A worker has a place: it moves
there what it received, trains there, and moves home what it sends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from undrift.core.model.flat_model import SINGLE
from undrift.core.records.types import Broadcast, ClientState, ServerState, Upload

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A device; a place belongs to a worker.

    Args:
        device: where the worker's model and its clients' tensors are.
        resident: the largest share of the device's free memory that a copy of the task's data may take; 0 keeps the
            data on the host and moves every batch.
    """

    device: torch.device
    resident: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.resident <= 1:
            raise ValueError(f"resident must be a share from 0 to 1 of the device's memory, got {self.resident}")

    @property
    def host(self) -> bool:
        """Whether this is the host itself: nothing is ever moved."""
        return self.device.type == "cpu"

    @property
    def exact(self) -> bool:
        """Whether the device has float64, so that exact sums are made there; otherwise they are made on the host."""
        return self.device.type not in SINGLE

    def to(self, x: T) -> T:
        """Move something here; what is here already is not copied.

        Args:
            x: a tensor, a module, a record of a round, or a tree or batch: tuples, lists and mappings of these.
                Anything else stays as it is, unless it has a method `to`, as batches of transformers have.
        """
        return cast(T, _move(x, self.device, non_blocking=self.device.type == "cuda"))

    def ahead(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, moved here one batch ahead of its use, through pinned memory where the device has it.

        Args:
            batches: of a task, on the host or here already.
        """
        if self.host:
            yield from batches
            return
        waiting: list[T] = []
        for batch in batches:
            waiting.append(self.to(_pin(batch) if self.device.type == "cuda" else batch))
            if len(waiting) > 1:
                yield waiting.pop(0)
        yield from waiting

    def fits(self, x: Any) -> bool:
        """Whether a copy of something stays below the share of the free memory; true where that is not known.

        Args:
            x: whatever `to` moves.
        """
        if self.host or not self.resident:
            return False
        free = _free(self.device)
        return free is None or _bytes(x) <= self.resident * free


HOST = Place(torch.device("cpu"))
"""The host: where the server's state, broadcasts at rest, checkpoints, stored states and messages are."""


def home(x: T) -> T:
    """Move something to the host: see `Place.to`."""
    return HOST.to(x)


def place_of(device: str | torch.device | None = None, resident: float = 0.5) -> Place:
    """The place with a device's name, checked.

    Args:
        device: "cpu", "cuda", "cuda:1", "mps", or any other that PyTorch has here; None is the CPU.
        resident: see `Place`.
    """
    if device is None:
        return Place(HOST.device, resident)
    try:
        found = torch.zeros(1, device=device)
        found.cpu()
    except (RuntimeError, AssertionError, NotImplementedError, AttributeError, TypeError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"device: {str(device)!r} cannot be used here: {why[:200]}; this machine has {', '.join(devices())}"
        ) from None
    return Place(found.device, resident)


def placed_with(module: nn.Module) -> Place:
    """The place of a model, to move batches to it; the host if the model has no parameters."""
    return next((Place(p.device) for p in module.parameters()), HOST)


def devices() -> list[str]:
    """The names of the devices that PyTorch can use here."""
    found = ["cpu"]
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None:
        found += [f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count())]
    return found


def _move(x: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """The same thing on a device, structure and types unchanged."""
    if isinstance(x, Tensor):
        return x.to(device, non_blocking=non_blocking)
    if isinstance(x, nn.Module):
        return x.to(device)

    def part(value: Any) -> Any:
        return _move(value, device, non_blocking=non_blocking)

    if isinstance(x, Broadcast | ClientState | Upload | ServerState):
        return replace(x, **{field.name: part(getattr(x, field.name)) for field in fields(x)})
    if isinstance(x, PackedSequence):  # a tuple of which a part stays on the host
        return x.to(device)  # type: ignore[arg-type]  # of torch's own stub
    return _map_tree(part, x, lambda other: other.to(device) if hasattr(other, "to") else other)


def _pin(x: Any) -> Any:
    """A batch in pinned memory, from which a copy need not wait."""
    if isinstance(x, Tensor):
        return x if x.is_pinned() or x.device.type != "cpu" else x.pin_memory()
    return x.pin_memory() if isinstance(x, PackedSequence) else _map_tree(_pin, x, lambda other: other)


def _map_tree(part: Callable[[Any], Any], x: Any, other: Callable[[Any], Any]) -> Any:
    """A tuple, list or dict of the same type with a function of each part; anything else goes to another function."""
    if isinstance(x, tuple):
        return type(x)(*map(part, x)) if hasattr(x, "_fields") else tuple(map(part, x))
    if isinstance(x, list):
        return list(map(part, x))
    if not isinstance(x, dict):
        return other(x)
    found = {key: part(value) for key, value in x.items()}
    if type(x) is not dict:
        same = copy(x)
        same.update(found)
        return same
    return found


def _bytes(x: Any) -> int:
    """The memory of all tensors in something."""
    if isinstance(x, Tensor):
        return x.nbytes
    if isinstance(x, Mapping):
        return sum(map(_bytes, x.values()))
    return sum(map(_bytes, x)) if isinstance(x, tuple | list) else 0


def _free(device: torch.device) -> int | None:
    """The free memory of a device in bytes; None if it is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None
