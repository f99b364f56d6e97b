"""Tensors, indices and lists as people give them, checked and converted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_INTEGERS = (torch.int8, torch.int16, torch.int32)


def as_pair(value: Any, what: str) -> tuple[Any, Tensor]:
    """Inputs and targets as tensors of one length.

    Args:
        value: a pair, or an object with `inputs` and `targets`.
        what: how to call it in errors, with a space at its end, or nothing.
    """
    value = getattr(value, "test", value)
    if hasattr(value, "inputs") and hasattr(value, "targets"):
        value = (value.inputs, value.targets)
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{what}must be a pair of inputs and targets, got {type(value).__name__}".lstrip())
    inputs, targets = value
    targets = as_tensor(targets, f"{what}targets")
    if targets.dtype in _INTEGERS or (targets.dtype == torch.uint8 and targets.dim() == 1):
        targets = targets.long()  # classes, as torch's losses take them
    if isinstance(inputs, tuple) and len(inputs) != len(targets) and all(hasattr(x, "shape") for x in inputs):
        raise TypeError(
            f"{what}inputs: got {len(inputs)} tensors; give several inputs as a dict by the names of the model's "
            'arguments, as in {"image": x, "age": y}'
        )
    parts = inputs if isinstance(inputs, Mapping) else {"": inputs}
    found = {key: as_tensor(x, f"{what}inputs" + (f"[{key!r}]" if key else "")) for key, x in parts.items()}
    for key, x in found.items():
        if len(x) != len(targets):
            name = f"{what}inputs" + (f"[{key!r}]" if key else "")
            raise ValueError(f"{name} has {len(x)} examples, but {what}targets {len(targets)}; give one for each")
    if not found:
        raise ValueError(f"{what}inputs: the dict is empty; give at least one tensor")
    return (found if isinstance(inputs, Mapping) else found[""]), targets


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor as it is; an array or list as a tensor, whose float64 becomes torch's default and integers int64."""
    if isinstance(value, Tensor):
        found = value
    else:
        try:
            found = torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"{what}: cannot become a tensor: {error}; give a tensor, an array or nested lists"
            ) from None
        if found.dtype == torch.float64:
            found = found.to(torch.get_default_dtype())
        elif found.dtype in _INTEGERS:
            found = found.long()
    if found.dim() == 0:
        raise ValueError(f"{what}: must have one entry for each example, got the single value {found.item()}")
    return found


def as_indices(value: Any, count: int, what: str) -> Tensor:
    """Indices as an int64 tensor, each of an existing example.

    Args:
        value: a list, tuple, range, array or tensor of integers.
        count: how many examples there are.
        what: how to call it in errors.
    """
    try:
        found = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what}: not a list of indices: {error}") from None
    if found.dim() != 1:
        raise ValueError(f"{what}: must be a list of indices, got the shape {list(found.shape)}")
    if len(found) == 0:
        return found.long()
    if found.dtype == torch.bool:
        raise TypeError(f"{what}: is a mask; give the indices, as mask.nonzero().flatten() does")
    if found.is_floating_point() or found.is_complex():
        raise TypeError(f"{what}: {found[0].item()} is not an integer; give indices from 0 to {count - 1}")
    for index in (int(found.min()), int(found.max())):
        if not 0 <= index < count:
            raise ValueError(
                f"{what}: index {index}, but there are {count} examples; give indices from 0 to {count - 1}"
            )
    return found.long()


def one_each(value: Any, what: str, count: int | None = None) -> Sequence[Any]:
    """A list with one entry for each client.

    Args:
        value: the list.
        what: how to call it in errors.
        count: how many clients there are; None accepts any number but none.
    """
    if isinstance(value, str | Mapping) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TypeError(f"{what}: must be a list with one entry for each client, got {type(value).__name__}")
    if len(value) == 0:
        raise ValueError(f"{what}: there is no client; give one entry for each client")
    if count is not None and len(value) != count:
        raise ValueError(f"{what}: there are {count} clients, but {len(value)} entries")
    return [value[i] for i in range(len(value))]
