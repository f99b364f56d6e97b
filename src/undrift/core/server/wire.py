"""Records as bytes and back: named tensors in safetensors with a SHA-256, never a pickle.

`flatten` and `restore` turn a record into a dict of tensors and back, bit for bit; names, kinds and lengths are checked
against what the algorithm's blocks declare before anything is used.
"""

from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.part_vector import Part
from undrift.core.model.flat_model import bytes_of
from undrift.core.records.short_vector import lengthen, shorten
from undrift.core.records.types import (
    TASK_NUMBERS,
    Broadcast,
    ClientState,
    Declared,
    Flight,
    ServerState,
    Upload,
    kinds,
)

_MAGIC = b"undrift1"
_FLIGHT = ("flight.time", "flight.started", "flight.tasks")
_TREES = {ServerState: "Server", Broadcast: "Sent", ClientState: "Client", Upload: "Up"}

RecordT = TypeVar("RecordT", ServerState, Broadcast, ClientState, Upload)


class WireError(ValueError):
    """Bytes or tensors that are not what was declared; the message names the field."""


def flatten(record: ServerState | Broadcast | ClientState | Upload) -> dict[str, Tensor]:
    """A record as named tensors; numbers become tensors of one element."""
    out: dict[str, Tensor] = {}
    for f in fields(record):
        value = getattr(record, f.name)
        if f.name == "parts":
            for slot, tree in value.items():
                out.update({f"parts.{slot}.{name}": _tensor(x) for name, x in zip(tree._fields, tree, strict=True)})
        elif f.name == "accepted":
            pairs = sorted(value.items())
            out["accepted"] = torch.tensor(pairs, dtype=torch.int64).reshape(len(pairs), 2)
        elif f.name == "flight" and value is not None:
            out |= {name: _tensor(getattr(value, name.partition(".")[2])) for name in _FLIGHT}
            for version, sent in value.sent.items():
                out |= {f"flight.sent.{version}.{name}": x for name, x in flatten(sent).items()}
        elif value is not None:
            out[f.name] = _tensor(value)
    return out


def flatten_short(record: Upload | Broadcast, algorithm: Algorithm, part: Part | None = None) -> dict[str, Tensor]:
    """A record as named tensors for a network: a displacement that the method compresses is in its short form.

    Args:
        record: the record.
        algorithm: declares the trees.
        part: what travels of the model's vectors; None is all.
    """
    tensors = flatten(record)
    if isinstance(record, Upload) and algorithm.release.traffic < 1:
        return tensors | {"delta": shorten(record.delta)}
    if part is None:
        return tensors
    return tensors | {name: part.cut(tensors[name]) for name in _vectors(type(record), algorithm) & tensors.keys()}


def _vectors(kind: type[Any], algorithm: Algorithm) -> set[str]:
    """The names of the tensors of a record that are as long as the model."""
    trees = {slot: kinds(getattr(block, _TREES[kind])) for slot, block in algorithm.slots()}
    own = {f"parts.{slot}.{name}" for slot, tree in trees.items() for name, what in tree.items() if what == "vector"}
    return own | {"params", "delta"}


def restore(
    kind: type[RecordT], algorithm: Algorithm, tensors: Mapping[str, Tensor], size: int, part: Part | None = None
) -> RecordT:
    """The record that `flatten` took apart.

    Args:
        kind: ServerState, Broadcast, ClientState or Upload.
        algorithm: declares the trees.
        tensors: what `flatten` or `flatten_short` returned.
        size: the length of the model; every vector must have it.
        part: what travels of a vector, if some may be cut to it.
    """
    left, parts = dict(tensors), {}
    if part is not None:
        left |= {name: part.widen(left[name]) for name in _vectors(kind, algorithm) & left.keys()}
    if kind is Upload and algorithm.release.traffic < 1 and "delta" in left and left["delta"].dtype == torch.uint8:
        try:
            left["delta"] = lengthen(left["delta"], size)
        except ValueError as error:
            raise WireError(f"delta: {error}") from error
    for slot, block in algorithm.slots():
        declared: Declared = getattr(block, _TREES[kind])
        if declared is not None:
            names = kinds(declared).items()
            parts[slot] = declared(*(_value(left, f"parts.{slot}.{name}", what, size) for name, what in names))
    values: dict[str, Any] = {"parts": parts}
    for f in fields(kind):
        if f.name == "accepted":
            values["accepted"] = _read_accepted(left.pop("accepted", None))
        elif f.name == "flight":
            values["flight"] = _read_flight(left, algorithm, size)
        elif f.name != "parts" and (f.name in left or kind is not ClientState):
            what = {"int": "int", "float": "float"}.get(_annotation(f.type), "array")
            values[f.name] = _value(left, f.name, "vector" if f.name in ("params", "delta") else what, size)
            if what == "array" and values[f.name].dim() != 1:
                raise WireError(f"{f.name}: expected one axis, got shape {tuple(values[f.name].shape)}")
    if left:
        raise WireError(f"{kind.__name__}: undeclared field {min(left)!r}")
    return kind(**values)


def to_bytes(record: ServerState | Broadcast | ClientState | Upload) -> bytes:
    """A record as bytes that carry their own checksum; fields that share memory are written one by one."""
    tensors, seen = dict[str, Tensor](), set[int]()
    for name, x in flatten(record).items():
        place = x.untyped_storage().data_ptr()
        tensors[name] = x.clone(memory_format=torch.contiguous_format) if place in seen else x.contiguous()
        seen.add(place)
    body = save(tensors)
    return _MAGIC + sha256(body).digest() + body


def from_bytes(kind: type[RecordT], algorithm: Algorithm, data: bytes, size: int) -> RecordT:
    """The record that `to_bytes` wrote; damaged or foreign bytes are rejected."""
    magic, digest, body = data[:8], data[8:40], data[40:]
    if magic != _MAGIC:
        raise WireError(f"{kind.__name__}: not an undrift record (it starts with {magic!r}); only safetensors are read")
    if sha256(body).digest() != digest:
        raise WireError(f"{kind.__name__}: the checksum does not match; the bytes are damaged or cut short")
    try:
        return restore(kind, algorithm, load(body), size)
    except (SafetensorError, KeyError, OverflowError, RuntimeError) as error:  # also of dtypes that torch lacks
        raise WireError(f"{kind.__name__}: {error}") from error


def fingerprint(record: ServerState | Broadcast | ClientState | Upload) -> str:
    """The SHA-256 of every bit of a record."""
    return _digest(flatten(record))


def stored_fingerprint(data: bytes) -> str:
    """The `fingerprint` of the record that `to_bytes` wrote, without knowing what it declares.

    Args:
        data: the bytes; damaged or foreign ones are rejected.
    """
    body = data[40:]
    if data[:8] != _MAGIC or sha256(body).digest() != data[8:40]:
        raise WireError("the checksum does not match; the bytes are damaged or cut short")
    try:
        return _digest(load(body))
    except SafetensorError as error:
        raise WireError(str(error)) from error


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of every bit of named tensors."""
    digest = sha256()
    for name, x in sorted(tensors.items()):
        digest.update(f"{name}{x.dtype}{tuple(x.shape)}".encode())
        digest.update(bytes_of(x))
    return digest.hexdigest()


def _tensor(x: Any) -> Tensor:
    """A value as a tensor."""
    if isinstance(x, Tensor):
        return x
    return torch.tensor([x], dtype=torch.int64 if isinstance(x, int) else torch.float64)


def _read_accepted(x: Tensor | None) -> dict[int, int]:
    """Clients and their last accepted rounds from pairs of whole numbers."""
    if x is None:
        return {}
    if x.dim() != 2 or x.shape[1] != 2 or x.dtype != torch.int64:
        raise WireError(f"accepted: expected pairs of whole numbers, got {tuple(x.shape)} of {x.dtype}")
    return dict(x.tolist())


def _read_flight(left: dict[str, Tensor], algorithm: Algorithm, size: int) -> Flight | None:
    """Take what is under way out of the tensors; None if nothing is."""
    if _FLIGHT[0] not in left:
        return None
    time, started = _value(left, _FLIGHT[0], "int", size), _value(left, _FLIGHT[1], "int", size)
    tasks = _value(left, _FLIGHT[2], "array", size)
    if tasks.dim() != 2 or tasks.shape[1] != TASK_NUMBERS or tasks.dtype != torch.int64:
        raise WireError(f"flight.tasks: expected rows of whole numbers, got {tuple(tasks.shape)} of {tasks.dtype}")
    versions: dict[int, dict[str, Tensor]] = {}
    for name in [name for name in left if name.startswith("flight.sent.")]:
        version, _, rest = name.removeprefix("flight.sent.").partition(".")
        if not version.isdecimal():
            raise WireError(f"{name}: expected the number of a round")
        versions.setdefault(int(version), {})[rest] = left.pop(name)
    sent = {version: restore(Broadcast, algorithm, versions[version], size) for version in sorted(versions)}
    return Flight(time, started, tuple(map(tuple, tasks.tolist())), sent)


def _value(left: dict[str, Tensor], name: str, kind: str, size: int) -> Any:
    """Take a field out of the tensors, as the declared kind."""
    if name not in left:
        raise WireError(f"missing field {name!r}")
    x = left.pop(name)
    if kind == "array":
        return x
    if kind == "vector":
        if x.shape != (size,):
            raise WireError(f"{name}: expected a vector of length {size}, got shape {tuple(x.shape)}")
        return x
    dtype = torch.int64 if kind == "int" else torch.float64
    if x.shape != (1,) or x.dtype != dtype:
        raise WireError(f"{name}: expected one {kind}, got {tuple(x.shape)} of {x.dtype}")
    return x.item()


def _annotation(annotation: Any) -> str:
    """The name of a field's type."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
