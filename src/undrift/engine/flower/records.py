"""Converts typed values to and from Flower records: one raw array per vector, validated before it is decoded.

An array is sent as its little-endian bytes, never as a pickle or a file format; numbers and names are sent in a config
record. Anything that differs from what is declared raises `WireError`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import prod
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from undrift.core.local.amounts import portable
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Local
from undrift.core.server.wire import WireError
from undrift.engine.flower.versions import NEWEST, OLDEST, READS, choose_version
from undrift.engine.worker.job import NOW, Timing

STYPE = "undrift.raw"
"""The serialisation of our arrays; any other is rejected."""

LOSSES = "losses"
"""The query for the losses of clients before a round."""

_DTYPES = {
    "float64": (torch.float64, "<f8"),
    "float32": (torch.float32, "<f4"),
    "float16": (torch.float16, "<f2"),
    "bfloat16": (torch.bfloat16, "<i2"),  # NumPy has no bfloat16: its bits are sent as integers
    "int64": (torch.int64, "<i8"),
    "int32": (torch.int32, "<i4"),
    "int16": (torch.int16, "<i2"),
    "int8": (torch.int8, "i1"),
    "uint8": (torch.uint8, "u1"),
    "bool": (torch.bool, "u1"),
}
_NAMES = {dtype: name for name, (dtype, _) in _DTYPES.items()}
_DIMENSIONS = 8
_LINE = 500

Kind = TypeVar("Kind", int, float, str, bytes)


class RefusedError(WireError):
    """A message of another version, or with which a node refuses to train; the node may be honest.

    Args:
        text: what is wrong.
        reason: why its clients are rejected.
    """

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


def encode(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Named tensors as a record of raw arrays."""
    return ArrayRecord({name: _array(name, x) for name, x in tensors.items()})


def decode(record: ArrayRecord, limit: int | None = None, *, keep: bool = True) -> dict[str, Tensor]:
    """The tensors that `encode` packed, bit for bit.

    Args:
        record: the received record.
        limit: the most bytes that all arrays may have together.
        keep: if false, each array is removed from the record once it is decoded.
    """
    held = sum(len(array.data) for array in record.values())
    if limit is not None and held > limit:
        raise WireError(f"the arrays have {held} bytes, at most {limit} were expected")
    return {name: _tensor(name, record[name] if keep else record.pop(name)) for name in list(record)}


def one_line(text: object) -> str:
    """A text from another machine as one printable line of bounded length, safe to log.

    Of a longer text the beginning and the end are left: a traceback ends with its message.
    """
    line = str(text)
    if len(line) > _LINE:
        line = f"{line[: _LINE // 4]} ... {line[len(line) - _LINE // 4 * 3 + 5 :]}"
    return "".join(c if c.isprintable() else " " for c in line)


def check_name(run: str) -> str:
    """Validate a run's name, which becomes part of a path on every node."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", run):
        raise WireError(
            f"{one_line(run[:100])!r} is not a valid run name: use letters, digits, dot, dash and underscore"
        )
    return run


@dataclass(frozen=True)
class Order:
    """The server's order to a node in a round.

    Args:
        run: the stable name of the run, under which nodes store their clients' states.
        round: the round.
        seed: the run's seed.
        algorithm: the `repr` of the method; a node with another method refuses.
        cohort: how many clients take part in the round in all.
        clients: the clients to train here.
        accepted: for each client with state, the last round in which its upload was accepted.
        local: the settings all clients share.
        bound: largest norm of a client's displacement; None allows any.
        head: the hash of the last event in the server's audit log, which a node keeps; None if there is no log.
        timing: when the uploads arrive, under a schedule without a barrier.
        short: the answer may leave out what does not travel of a vector.
        changed: the positions of the tensors that the message has, beside those that the node holds; None has all.
        digest: of the whole model, where the message has a part of it.
        version: the version of the message, and of the reply to it.
    """

    run: str
    round: int
    seed: int
    algorithm: str
    cohort: int
    clients: list[int]
    accepted: Mapping[int, int]
    local: Local
    bound: float | None = None
    head: str | None = None
    timing: Timing = NOW
    version: int = NEWEST
    short: bool = False
    changed: list[int] | None = None
    digest: str = ""

    def record(self) -> ConfigRecord:
        """The order as scalars, strings and lists."""
        local = {f"local.{name}": _sendable(name, x) for name, x in asdict(self.local).items() if x is not None}
        bound = {} if self.bound is None else {"bound": float(self.bound)}
        head: dict[str, Any] = {} if self.head is None else {"head": self.head}
        head |= {"short": True} if self.short else {}
        head |= {} if self.changed is None else {"changed": self.changed, "digest": self.digest}
        return ConfigRecord(
            {
                **{name: getattr(self, name) for name in ("version", "run", "round", "seed", "algorithm", "cohort")},
                "clients": list(self.clients),
                "accepted": [self.accepted.get(client, -1) for client in self.clients],
                **local,
                **bound,
                **head,
                **{f"timing.{name}": x for name, x in self.timing._asdict().items() if x is not None},
            }
        )

    @classmethod
    def read(cls, content: RecordDict) -> "Order":
        """The order in a message."""
        record = read_config(content)
        clients, accepted = read_integers(record, "clients"), read_integers(record, "accepted")
        if not clients or len(set(clients)) < len(clients) or len(accepted) != len(clients):
            raise WireError(f"clients and accepted do not fit: {len(clients)} and {len(accepted)}")
        given = {key.removeprefix("local."): value for key, value in record.items() if key.startswith("local.")}
        if unknown := sorted(given.keys() - {f.name for f in fields(Local)}):
            raise WireError(f"local settings not known to this node: {one_line(unknown)}: update undrift on it")
        try:
            local = Local(**given)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise WireError(f"the local settings cannot be used: {error}") from error
        return cls(
            run=check_name(read_scalar(record, "run", str)),
            round=read_scalar(record, "round", int),
            seed=read_scalar(record, "seed", int),
            algorithm=read_scalar(record, "algorithm", str),
            cohort=read_scalar(record, "cohort", int),
            clients=clients,
            accepted={client: last for client, last in zip(clients, accepted, strict=True) if last >= 0},
            local=local,
            bound=read_scalar(record, "bound", float) if "bound" in record else None,
            head=one_line(read_scalar(record, "head", str)) if "head" in record else None,
            timing=Timing(
                **{
                    x: read_scalar(record, f"timing.{x}", int)
                    for x in ("age", "turn", "key")
                    if f"timing.{x}" in record
                }
            ),
            version=read_scalar(record, "version", int),
            short=record.get("short") is True,
            changed=read_integers(record, "changed") if "changed" in record else None,
            digest=read_scalar(record, "digest", str) if "changed" in record else "",
        )


@dataclass(frozen=True, eq=False)
class Answer:
    """A node's reply: the tensors of an upload or of a partial sum, and a summary of its clients in JSON.

    With `holds` the node keeps the model of the round, so that the next order need have only what has changed.
    """

    round: int
    summary: str
    tensors: Mapping[str, Tensor]
    holds: bool = False

    def content(self, version: int = NEWEST) -> RecordDict:
        """The answer as records, in the version of the order."""
        holds = {"holds": True} if self.holds else {}
        head = ConfigRecord({"version": version, "round": self.round, "summary": self.summary, **holds})
        return RecordDict({"undrift": head, "arrays": encode(self.tensors)})

    @classmethod
    def read(cls, content: RecordDict, limit: int, most: int, version: int = NEWEST) -> "Answer":
        """The answer in a reply; its arrays are removed from the reply as they are decoded.

        Args:
            content: the reply's records.
            limit: the most bytes that all arrays may have together.
            most: the most characters that the summary may have.
            version: the version of the order, which the answer must have.
        """
        record = read_config(content, (version,))
        summary = read_scalar(record, "summary", str)
        if len(summary) > most:
            raise WireError(f"the summary has {len(summary)} characters, at most {most} were expected")
        arrays = content.get("arrays")
        if not isinstance(arrays, ArrayRecord):
            raise WireError("there is no array record named 'arrays'")
        tensors = decode(arrays, limit, keep=False)
        return cls(read_scalar(record, "round", int), summary, tensors, record.get("holds") is True)


def refusal(why: str, content: RecordDict | None = None) -> RecordDict:
    """A node's reply when it refuses to train.

    Args:
        why: the reason.
        content: of the server's message, in whose version the reply is written if this program reads it.
    """
    record = None if content is None else content.get("undrift")
    version = record.get("version") if isinstance(record, ConfigRecord) else None
    written = version if isinstance(version, int) and version in READS else NEWEST
    return RecordDict({"undrift": ConfigRecord({"version": written, "refused": why})})


def question(population: int, run: str = "", withdrawn: Sequence[int] = ()) -> RecordDict:
    """The server's question to a node: which of the population's clients does it host?

    Args:
        population: how many clients there are.
        run: the name under which nodes store the run's states.
        withdrawn: clients that have left the run, whose states the node deletes.
    """
    record = ConfigRecord({"version": OLDEST, "versions": list(READS), "population": population})
    if withdrawn:
        record["run"], record["withdrawn"] = run, list(withdrawn)
    return RecordDict({"undrift": record})


def read_population(content: RecordDict) -> int:
    """The population, from the server's question."""
    return read_scalar(read_config(content), "population", int)


def read_offer(content: RecordDict) -> int:
    """The version in which a node answers the server's question, and the server then writes to it."""
    record = read_config(content)
    offered = read_integers(record, "versions") if "versions" in record else []
    return choose_version(offered, read_scalar(record, "version", int))


def read_withdrawn(content: RecordDict) -> tuple[str, list[int]]:
    """The run and the clients that have left it, from the server's question."""
    record = read_config(content)
    if "withdrawn" not in record:
        return "", []
    return check_name(read_scalar(record, "run", str)), read_integers(record, "withdrawn")


def claim(
    clients: Iterable[int], *, evaluates: bool = False, forgotten: Sequence[int] = (), version: int = NEWEST
) -> RecordDict:
    """The clients a node hosts: a range as three numbers, anything else as a list.

    Args:
        clients: their numbers.
        evaluates: whether the node has an evaluate function.
        forgotten: clients of the node that have left the run, whose states are deleted.
        version: the version that the node has chosen: see `read_offer`.
    """
    record = ConfigRecord({"version": version, **({"evaluates": True} if evaluates else {})})
    if forgotten:
        record["forgotten"] = list(forgotten)
    if isinstance(clients, range):
        record["start"], record["stop"], record["step"] = clients.start, clients.stop, clients.step
    else:
        record["clients"] = sorted({int(client) for client in clients})
    return RecordDict({"undrift": record})


def read_forgotten(content: RecordDict, withdrawn: Sequence[int]) -> list[int]:
    """The clients that have left the run whose states the node of a claim has deleted, sorted."""
    record = read_config(content)
    return sorted(set(read_integers(record, "forgotten")) & set(withdrawn)) if "forgotten" in record else []


def read_version(content: RecordDict) -> int:
    """The version of a message."""
    return read_scalar(read_config(content), "version", int)


def read_evaluates(content: RecordDict) -> bool:
    """Whether the node of a claim has an evaluate function."""
    return read_config(content).get("evaluates") is True


def read_claim(content: RecordDict, population: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The clients a node claims to host, validated against the population."""
    record = read_config(content)
    if "clients" in record:
        clients = np.array(read_integers(record, "clients"), dtype=np.int64)
    else:
        start, stop, step = (read_scalar(record, name, int) for name in ("start", "stop", "step"))
        if not (start >= 0 and stop <= population and step >= 1):
            raise WireError(f"range({start}, {stop}, {step}) goes beyond the {population} clients")
        clients = np.arange(start, stop, step, dtype=np.int64)
    if len(clients) and not (clients.min() >= 0 and clients.max() < population):
        wrong = clients.min() if clients.min() < 0 else clients.max()
        raise WireError(f"it claims client {wrong}; there are {population}, numbered from 0")
    if len(np.unique(clients)) < len(clients):
        raise WireError("it claims a client twice")
    return clients


def _sendable(name: str, value: Any) -> Any:
    """A local setting as Flower can send it: numbers of a list have one type, a function is named by its reference."""
    if isinstance(value, tuple):
        return [float(x) for x in value] if any(isinstance(x, float) for x in value) else list(value)
    return portable(f"local.{name}", value)


def _array(name: str, x: Tensor) -> Array:
    """One tensor as its raw bytes."""
    if x.dtype not in _NAMES:
        raise WireError(f"{name}: {x.dtype} cannot be sent; known are {', '.join(_DTYPES)}")
    kind = _NAMES[x.dtype]
    flat = x.detach().cpu().contiguous()
    flat = flat.view(torch.int16) if kind == "bfloat16" else flat
    data = flat.numpy().astype(_DTYPES[kind][1], copy=False).tobytes()
    return Array(dtype=kind, shape=tuple(x.shape), stype=STYPE, data=data)


def _tensor(name: str, array: Array) -> Tensor:
    """One tensor from its raw bytes, whose number must match shape and dtype."""
    if array.stype != STYPE:
        raise WireError(f"{one_line(name)}: serialised as {one_line(array.stype)!r}, only {STYPE!r} is read")
    if array.dtype not in _DTYPES:
        raise WireError(f"{one_line(name)}: dtype {one_line(array.dtype)!r} is not known")
    shape = array.shape
    if len(shape) > _DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError(f"{one_line(name)}: {one_line(shape)} is not a shape")
    dtype, layout = _DTYPES[array.dtype]
    if len(array.data) != prod(shape) * np.dtype(layout).itemsize:
        raise WireError(f"{one_line(name)}: {len(array.data)} bytes for shape {one_line(shape)} of {array.dtype}")
    raw = np.frombuffer(array.data, dtype=layout)
    x = torch.from_numpy(raw.astype(raw.dtype.newbyteorder("=")).reshape(shape))  # a writable copy
    x = x if x.numel() else torch.empty(shape, dtype=x.dtype)  # NumPy's empty copies have a stride of 0
    if array.dtype == "bool" and int(raw.max(initial=0)) > 1:
        raise WireError(f"{one_line(name)}: a bool that is neither 0 nor 1")
    return x.view(dtype) if dtype in (torch.bfloat16, torch.bool) else x


def read_config(content: RecordDict, versions: Sequence[int] = READS) -> ConfigRecord:
    """Our config record in a message, validated for its version.

    Args:
        content: the message's records.
        versions: the versions that it may have.
    """
    record = content.get("undrift")
    if not isinstance(record, ConfigRecord):
        raise WireError("there is no config record named 'undrift'")
    found = record.get("version")
    if type(found) is not int or found not in versions:
        reason = Reason.VERSION if type(found) is int else Reason.TREE
        expected, where = " or ".join(map(str, versions)), "here" if type(found) is int and found > NEWEST else "there"
        raise RefusedError(f"message version {one_line(found)}, expected {expected}: update undrift {where}", reason)
    if "refused" in record:
        raise RefusedError(f"refused: {one_line(record['refused'])}", Reason.FAILED)
    return record


def read_scalar(record: ConfigRecord, name: str, kind: type[Kind]) -> Kind:
    """A value of exactly this type."""
    value: Any = record.get(name)
    if type(value) is not kind:
        raise WireError(f"{name}: expected one {kind.__name__}, got {one_line(repr(value))}")
    return value


def read_integers(record: ConfigRecord, name: str) -> list[int]:
    """A list of whole numbers."""
    value = record.get(name)
    if not isinstance(value, list) or not all(type(x) is int for x in value):
        raise WireError(f"{name}: expected a list of whole numbers")
    return [x for x in value if isinstance(x, int)]
