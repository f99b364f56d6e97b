"""Data for workers, copied so that no tensor takes a larger storage with it.

A pickled tensor takes the whole storage with it, also if it is a row of it: a list of a tensor's thousand rows would be
a thousand times as large as the tensor.
"""

from copy import copy
from typing import Any

from torch import Tensor
from torch.utils.data import Subset, TensorDataset


def compact(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """The same data, with copies of tensors that are parts of larger ones.

    It searches lists, tuples, dicts, `TensorDataset`, `Subset` and objects of a class whose `compacts` names one of
    their attributes; everything else, and whatever has no such tensor,
    stays as it is. What was one object stays one.

    Args:
        value: the data.
        seen: what was done already, by identity.

    Example:
        >>> import torch
        >>> rows = list(torch.arange(6).view(3, 2))
        >>> [row.untyped_storage().nbytes() for row in (rows[0], compact(rows)[0])]
        [48, 16]
    """
    seen = {} if seen is None else seen
    if id(value) not in seen:
        seen[id(value)] = _compact(value, seen)
    return seen[id(value)]


def _compact(value: Any, seen: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is Tensor:
        return value.clone() if value.untyped_storage().nbytes() > value.numel() * value.element_size() else value
    if kind in (list, tuple):
        parts = [compact(part, seen) for part in value]
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else kind(parts)
    if kind is dict:
        parts = [compact(part, seen) for part in value.values()]
        same = all(new is old for new, old in zip(parts, value.values(), strict=True))
        return value if same else dict(zip(value, parts, strict=True))
    name = {TensorDataset: "tensors", Subset: "dataset"}.get(kind) or getattr(kind, "compacts", None)
    if name is None:
        return value
    new = copy(value)
    setattr(new, name, compact(getattr(value, name), seen))
    return new
