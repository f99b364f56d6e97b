"""The model that a node received last, on its disk: the server then sends the tensors that have changed since.

Only where a method leaves much of the model as it is: see `keeps_models`.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.part_vector import travelling
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.rejection import Reason
from undrift.engine.flower.records import RefusedError
from undrift.util.storage.files import make_private, write


def keeps_models(algorithm: Algorithm, layout: Layout, round: int) -> bool:
    """Whether a node keeps the model of a round: a quarter of it or more need not be sent then or in the next round."""
    received = min(travelling(algorithm.personalization, layout, turn, False) for turn in (round, round + 1))
    return not algorithm.schedule.overlaps and 4 * received <= 3 * layout.size


def digests(layout: Layout, params: Vector) -> tuple[str, ...]:
    """The SHA-256 of every tensor of a model."""
    tensors = (x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for x in layout.split(params))
    return tuple(sha256(x.data).hexdigest() for x in tensors)


def keep(path: Path, params: Vector) -> bool:
    """Write a model; False if it cannot be written, and the node then receives whole models."""
    try:
        make_private(path.parent)
        write(path, save({"params": params.detach().cpu()}), sync=False)
    except OSError:
        return False
    return True


def patch(path: Path, layout: Layout, changed: Sequence[int], sent: Tensor, digest: str) -> Vector:
    """The server's model: the one that was kept, with the tensors that have changed.

    Args:
        path: the file of the model that was kept.
        layout: the names and shapes of the tensors.
        changed: their positions.
        sent: their values, one after the other.
        digest: of the server's model: see `digest_of`.

    Raises:
        RefusedError: the file is gone, or it has another model. The server sends the whole one in the next round.
    """
    try:
        params = load(path.read_bytes())["params"]
        tensors = layout.split(params)
        for i, x in zip(changed, torch.split(sent, [layout.sizes[i] for i in changed]), strict=True):
            tensors[i].copy_(x.view(layout.shapes[i]))
        if digest_of(digests(layout, params)) == digest and params.dtype == sent.dtype:
            return params
    except (OSError, SafetensorError, KeyError, IndexError, RuntimeError, ValueError):
        pass
    raise RefusedError("the model of an earlier round is not here any more: the next order has all of it", Reason.ROUND)


def digest_of(each: Sequence[str]) -> str:
    """The digest of a model, from those of its tensors."""
    return sha256("".join(each).encode()).hexdigest()
