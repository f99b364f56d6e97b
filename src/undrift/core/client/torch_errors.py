"""What to do about errors of torch whose cause is the model, the data or the device: torch's own words do not tell."""

import re
from collections.abc import Mapping
from typing import Any

from torch import OutOfMemoryError, Tensor

_ADVICE = (
    (
        r"Expected more than 1 value per channel",
        "batch normalisation cannot train on a batch of one example: leave out a short last batch with drop_last, "
        "Local(drop_last=True) or local.drop_last = true, or choose another batch_size",
    ),
    (
        r"out of memory|can't allocate memory|not enough memory",
        "choose a smaller batch_size or precision bf16, let fewer workers share the device, or keep the data on the "
        "host with resident=0",
    ),
    (
        r"on the same device|same device, but",
        "create tensors in the model and in the loss on the device of the inputs, torch.zeros(3, device=x.device); "
        "register constant ones with register_buffer",
    ),
    (
        r"shapes? cannot be multiplied|size mismatch|expected input|Expected [234]D|must match the size|Given groups|"
        r"Given normalized_shape|shape '.*' is invalid|running_mean should contain",
        "the model does not take inputs of this shape: change its layers, or reshape the inputs",
    ),
    (
        r"same dtype|expected scalar type|to have scalar type|should be the same",
        "model and data differ in their dtype: convert the inputs, as in inputs.float(), or the targets, as in "
        "targets.long() for classes",
    ),
    (
        r"expected target dtype|target dtype to be|expected target size|Expected floating point type for target",
        "the targets do not fit the criterion: cross entropy takes one class per example, as in targets.long()",
    ),
    (
        r"Target -?\d+ is out of bounds|Assertion `t >= 0 && t < n_classes`",
        "classes are numbered from 0 to one less than the model's outputs: number them so, or give the model more "
        "outputs",
    ),
    (
        r"index out of range in self|Assertion `srcIndex < srcSelectDimSize`",
        "an input is beyond the rows of an embedding: give it as many as there are different tokens",
    ),
)


def advice(error: BaseException, batch: Any = None) -> str:
    """What to do about an error of torch, to be put after its message; "" for errors of others.

    Args:
        error: what was raised.
        batch: on what, for its shapes.

    Example:
        >>> advice(IndexError("Target 3 is out of bounds."))[:38]
        '; classes are numbered from 0 to one l'
        >>> advice(ValueError("the file is gone"))
        ''
    """
    text = "out of memory" if isinstance(error, OutOfMemoryError | MemoryError) else str(error)
    for pattern, words in _ADVICE:
        if isinstance(error, RuntimeError | ValueError | IndexError | TypeError | MemoryError) and re.search(
            pattern, text
        ):
            shapes = describe_batch(batch)
            return f"; {words}" + (f" (the batch is {shapes})" if shapes and "fewer workers" not in words else "")
    return ""


def describe_batch(batch: Any) -> str:
    """The shapes and dtypes of a batch, in short.

    Args:
        batch: tensors in tuples, lists and mappings.

    Example:
        >>> import torch
        >>> describe_batch((torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)))
        '([4, 3] float32, [4] int64)'
    """
    if isinstance(batch, Tensor):
        return f"{list(batch.shape)} {str(batch.dtype).removeprefix('torch.')}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{name}: {describe_batch(x)}" for name, x in list(batch.items())[:8]) + "}"
    if isinstance(batch, tuple | list):
        return f"({', '.join(describe_batch(x) for x in batch[:8])})"
    return "" if batch is None else type(batch).__name__
