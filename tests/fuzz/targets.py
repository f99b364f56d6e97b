"""Every decoder of untrusted or hand-written input: good inputs to start from, and the one error it may raise."""

import json
import pickle
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from undrift import Local, Simulation
from undrift.algorithms import ALGORITHMS, make
from undrift.compose.grammar import parse as parse_composition
from undrift.compose.grammar import text as composition_text
from undrift.core.local.devices import COLUMNS, read_devices
from undrift.core.local.schedule import Schedule
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import Layout
from undrift.core.records.packed_sum import PackedSum
from undrift.core.records.types import Broadcast, ClientState, ServerState, Upload
from undrift.core.server import step as server
from undrift.core.server import wire
from undrift.core.server.total import Total
from undrift.core.server.wire import WireError
from undrift.core.tasks.participation import pin_trace, read_trace
from undrift.data import Augment
from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import read_idx, read_npz
from undrift.data.partitions.draw import parse as parse_partition
from undrift.data.partitions.draw import partition
from undrift.engine.worker.partial_sum import Partial
from undrift.models.start import read_weights
from undrift.runs.folder import audit, checkpoint
from undrift.runs.folder.checkpoint import CheckpointError, Checkpoints
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.testing import Clinic
from undrift.util.naming.references import Reference

ROOT = Path(__file__).parents[2]
METHOD = "fedlesam-s"
LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
LABELS = [0, 1, 2, 3] * 6


@dataclass(frozen=True)
class Target:
    """A decoder.

    Args:
        decode: decodes bytes; anything it raises besides `errors` is a fault.
        errors: what the decoder's documentation says it raises.
        seeds: inputs that are accepted.
        words: pieces that are worth inserting.
    """

    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()


def _text(decode: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: decode(data.decode("utf-8", errors="surrogateescape" if len(data) % 7 == 0 else "replace"))


@cache
def _state() -> tuple[Any, ServerState]:
    algorithm = make(METHOD)
    return algorithm, Simulation(algorithm, Clinic(), LOCAL, cohort=4).run(1)


@cache
def _folder() -> Path:
    held = tempfile.TemporaryDirectory(prefix="undrift-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    _HELD.append(held)
    return Path(held.name)


_HELD: list[tempfile.TemporaryDirectory[str]] = []


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


# Records of our own: the checksum is made to fit, so that what lies behind it is reached.


def _wire(data: bytes) -> object:
    algorithm, state = _state()
    kind = (ServerState, Broadcast, ClientState, Upload)[data[0] % 4 if data else 0]
    body = data[1:]
    head = b"undrift1" + sha256(body).digest() if len(body) % 5 else b""
    return wire.from_bytes(kind, algorithm, head + body, len(state.params))  # type: ignore[type-var]


def _wire_seeds() -> list[bytes]:
    algorithm, state = _state()
    setting = Setting(8, Local(), Layout(("w",), ((len(state.params),),)))
    sent = server.send(algorithm, state, setting)
    return [b"\0" + wire.to_bytes(state)[40:], b"\1" + wire.to_bytes(sent)[40:]]


def _checkpoint(data: bytes) -> object:
    """A checkpoint whose manifest fits its state: the state is forged, or the manifest itself."""
    algorithm, state = _state()
    kept = Checkpoints(_folder() / "checkpoints", algorithm, len(state.params), "run", keep=1)
    manifest, forged = kept._manifest(state.round), data[1:]
    if not manifest.exists() or _MANIFEST not in _KEPT:
        kept.save(state)
        _KEPT[_MANIFEST] = manifest.read_bytes()
    if data[:1] < b"\x80":
        facts = json.loads(_KEPT[_MANIFEST])
        facts.pop("check")
        facts |= {"bytes": len(forged), "sha256": sha256(forged).hexdigest()}
        kept._state(state.round).write_bytes(forged)
        manifest.write_text(json.dumps({**facts, "check": checkpoint._check(facts)}))
    else:
        kept._state(state.round).write_bytes(wire.to_bytes(state))
        manifest.write_bytes(forged)
    return kept.load(state.round)


_MANIFEST = "manifest"
_KEPT: dict[str, bytes] = {}


def _checkpoint_seeds() -> list[bytes]:
    algorithm, state = _state()
    kept = Checkpoints(_folder() / "seeds", algorithm, len(state.params), "run", keep=1)
    kept.save(state)
    manifest = kept._manifest(state.round).read_bytes()
    return [b"\0" + wire.to_bytes(state), b"\xff" + manifest]


def _reply(data: bytes) -> object:
    """A node's reply: tensors in safetensors, then a summary."""
    algorithm, state = _state()
    length = int.from_bytes(data[:3], "little")
    try:
        tensors = wire.load(data[3 : 3 + length])
    except Exception:  # Flower's own records come apart elsewhere: see the target "records"
        tensors = {}
    if tensors.get("clients", torch.zeros(0)).dtype != torch.int64:
        return None
    part = Partial(Total(algorithm, LOCAL, 0))
    part.restore(tensors, data[3 + length :].decode("utf-8", "replace"), len(state.params))
    for total in part.total.sums.values():
        if isinstance(total, PackedSum) and total.data.dtype == torch.uint8 and total.complete(len(state.params)):
            total.sound(1e6)
    return part


def _reply_seeds() -> list[bytes]:
    algorithm, _ = _state()
    simulation = Simulation(algorithm, Clinic(), LOCAL)
    part = simulation.worker.serve(server.send(algorithm, simulation.start(), simulation.job.setting), [3, 4], {}, 8)
    tensors, summary = part.flatten()
    body = save({name: x.contiguous() for name, x in tensors.items()})
    return [len(body).to_bytes(3, "little") + body + summary.encode()]


def _packed(data: bytes) -> object:
    size = 20
    total = PackedSum(
        torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    )
    return total.complete(size) and total.sound(1e6) and total.value()


def _packed_seeds() -> list[bytes]:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=20), np.zeros(20), rng.integers(-9, 9, 20) * 1e6]
    parts = [(np.round(x * 1024) / 1024, np.zeros(20)) for x in values]
    return [bytes(PackedSum.of(torch.from_numpy(c), torch.from_numpy(f)).data.numpy()) for c, f in parts]


# Flower's records: content from a plan in JSON, since Flower itself decodes the bytes.


def _records(data: bytes) -> object:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from undrift.engine.flower.records import Answer, Order, read_claim, read_population

    try:
        plan = json.loads(data)
        head = ConfigRecord(_sendable(plan["head"]))
        arrays = {str(n): Array(d, tuple(s), t, bytes(b, "latin-1")) for n, d, s, t, b in plan.get("arrays", [])}
        content = RecordDict({"undrift": head, "arrays": ArrayRecord(arrays)})
    except Exception:
        return None  # Flower would not have sent it
    for read in (
        Order.read,
        lambda c: Answer.read(c, 10**6, 10**5),
        read_population,
        lambda c: read_claim(c, 100),
    ):
        try:
            read(content)
        except WireError:
            continue
    return content


def _sendable(head: dict[str, Any]) -> dict[str, Any]:
    """What Flower can send: numbers of 64 bits."""
    for value in head.values():
        for x in value if isinstance(value, list) else [value]:
            if isinstance(x, int) and not -(2**63) <= x < 2**63:
                raise OverflowError
    return head


def _records_seeds() -> list[bytes]:
    from undrift.engine.flower.records import Order, claim, question
    from undrift.engine.flower.versions import NEWEST

    order = Order("run-1", 0, 3, "Algorithm()", 3, [1, 2], {1: 0}, LOCAL, 1.0).record()
    plans: list[dict[str, Any]] = [
        {"head": dict(order)},
        {"head": dict(question(9)["undrift"])},
        {"head": dict(claim([1, 2])["undrift"])},
        {"head": dict(claim(range(0, 9, 3))["undrift"])},
        {
            "head": {"version": NEWEST, "round": 0, "summary": "{}"},
            "arrays": [["delta", "float32", [1], "undrift.raw", "\0\0\0\0"], ["b", "bool", [2], "undrift.raw", "\1\0"]],
        },
    ]
    return [json.dumps(plan).encode() for plan in plans]


# Texts that people write.


def _config(text: str) -> object:
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None  # `read_toml` reports it; the target "toml" tries that
    return Config.build(values)


def _toml(data: bytes) -> object:
    return Config.read(_file("run.toml", data))


def _config_seeds() -> list[bytes]:
    written = [
        Config().toml(),
        'method = "scaffold + sam(rho=0.05)"\ncohort = 0.1\n[local]\nschedule = "warmup(2) + cosine"\nepochs = [1, 2]',
        'preset = "fedfft"\n[local]\npreset = "fedfft"\n[output]\nlens_filter = "high_pass(0.1)"\ntrack = []',
        'task = "package.module:task"\ngoal = "max f1"\ntarget = [0.5, 0.9]\nmetrics = ["accuracy"]',
        'data = {name = "cifar10", resize = 16}\nmodel = {name = "vit-tiny", patch = 8}\ninit = "w.safetensors"',
    ]
    return [text.encode() for text in written]


def _composition(text: str) -> object:
    try:
        algorithm = parse_composition(text)
    except TypeError as error:
        if not traceback.extract_tb(error.__traceback__)[-1].filename.endswith("core/method/algorithm.py"):
            raise
        raise ValueError(str(error)) from error  # blocks that do not fit together, as `Algorithm` documents
    assert parse_composition(composition_text(algorithm)) == algorithm
    return algorithm


def _composition_seeds() -> list[bytes]:
    texts = ["scaffold + sam(rho=0.05) + high-pass(0.01) + fedawa + fedper", "momentum:feddyn(0.1)", *ALGORITHMS]
    return [text.encode() for text in texts]


def _partition(text: str) -> object:
    scheme = parse_partition(text)
    assert str(parse_partition(str(scheme))) == str(scheme)
    if text.lstrip().startswith(("file", "column")) or "file:" in text:
        return scheme
    return partition(scheme, LABELS, 4)


def _partition_seeds() -> list[bytes]:
    texts = (
        "iid",
        "dirichlet:0.1",
        "dirichlet: 0.10, min_size=10, balance=false",
        "dirichlet-client:0.3",
        "classes:2",
        "quantity:0.5",
        "longtail:100,over=dirichlet-client:0.3",
        "corrupt:0.5,over=dirichlet:0.1",
        "column:owner",
        "natural",
    )
    return [text.encode() for text in texts]


def _schedule(text: str) -> object:
    found = Schedule.parse(text)
    assert Schedule.parse(str(found)) == found
    return found.ending(10).factor(3)


def _reference(text: str) -> object:
    return Reference.parse(text)


def _lists(data: bytes) -> object:
    """The file of a partition."""
    return partition(f"file:{_file('clients.json', data)}", LABELS)


def _trace(data: bytes) -> object:
    """The file of an availability."""
    return read_trace(pin_trace(f"file:{_file('trace.json', data)}"))(3, 1)


def _devices(data: bytes) -> object:
    """The file of devices."""
    return read_devices(str(_file("devices.csv", data)))


def _audit(data: bytes) -> object:
    return audit.read_log(_file("audit.jsonl", data))


def _audit_seeds() -> list[bytes]:
    path = _folder() / "written.jsonl"
    path.unlink(missing_ok=True)
    log = audit.Audit(path)
    log.write("begin", round=0)
    log.write("reject", client=3, why="late")
    return [path.read_bytes()]


# Files of data and weights.


def _safetensors(data: bytes) -> object:
    return read_weights(_file("w.safetensors", data))


def _torch(data: bytes) -> object:
    return read_weights(_file("w.pt", data))


def _torch_seeds() -> list[bytes]:
    path = _folder() / "seed.pt"
    torch.save({"weight": torch.ones(2, 2), "bias": torch.zeros(2)}, path)
    return [path.read_bytes()]


def _idx(data: bytes) -> object:
    return read_idx(_file("train-images-idx3-ubyte", data))


def _npz(data: bytes) -> object:
    return read_npz(_file("data.npz", data), "x")


def _npz_seeds() -> list[bytes]:
    path = _folder() / "seed.npz"
    np.savez(path, x=np.arange(6))
    return [path.read_bytes()]


_NUMBERS = (b"nan", b"inf", b"-0", b"1e308", b"1e400", b"-1", b"0", b"10**9", b"1" * 30, b"true", b"[]", b"{}", b'""')
_SIGNS = (b"(", b")", b"+", b":", b",", b"=", b"'", b'"', b"\\", b"\n", b"\0", "\u0660".encode(), b" ", b"[[[", b"#")
_FAST = {0: {"computation": 20.0, "communication": 1024.0}}
_JSON = (b"null", b"[" * 50, b'{"a":', b"NaN", b"1e999", b'"\\ud800"', b"-", b"9" * 5000, *_SIGNS)

TARGETS: dict[str, Target] = {
    "wire": Target(_wire, (WireError,), _wire_seeds, (b'"F64"', b'"I64"', b'"BF16"', b'"F8_E4M3"', b"[0,0]", b"[]")),
    "checkpoint": Target(_checkpoint, (CheckpointError,), _checkpoint_seeds, (b"undrift1", *_JSON)),
    "reply": Target(_reply, (WireError,), _reply_seeds, _JSON),
    "packed": Target(_packed, (), _packed_seeds, (b"\xff" * 8, b"\x0d", b"\x33")),
    "records": Target(_records, (WireError,), _records_seeds, (*_JSON, b'"local.epochs":', b'"float64"')),
    "config": Target(_text(_config), (ConfigError,), _config_seeds, (*_NUMBERS, *_SIGNS)),
    "toml": Target(_toml, (ConfigError,), _config_seeds, (*_NUMBERS, *_SIGNS)),
    "composition": Target(_text(_composition), (ValueError,), _composition_seeds, (*_NUMBERS, *_SIGNS, b"drift:")),
    "partition": Target(_text(_partition), (ValueError,), _partition_seeds, (*_NUMBERS, *_SIGNS, b",over=")),
    "schedule": Target(
        _text(_schedule),
        (ValueError,),
        lambda: [b"warmup(5) + cosine(over=9)", b"step(every=3, factor=0.5)", b"exponential(0.9)", b"math:floor"],
        (*_NUMBERS, *_SIGNS),
    ),
    "augment": Target(_text(Augment.parse), (ValueError,), lambda: [b"flip+crop(padding=8, probability=0.5)"], _SIGNS),
    "reference": Target(_text(_reference), (), lambda: [b"package.module:object", b"file:a.json"], _SIGNS),
    "lists": Target(_lists, (ValueError,), lambda: [b"[[0, 1], [2, 3]]", b'{"a": [0], "b": [1]}'], _JSON),
    "trace": Target(
        _trace,
        (ValueError,),
        lambda: [b"[[1, [5, 9]], [], [], [2]]", b'{"3": {"period": 24, "rounds": [[8, 20]]}}'],
        _JSON,
    ),
    "devices": Target(
        _devices,
        (ValueError,),
        lambda: [f"{','.join(COLUMNS)}\n0,0.02,1.5,0-8 18-24,24\n1,0.005,0.2,,\n".encode(), pickle.dumps(_FAST)],
        (*_NUMBERS, b"-", b","),
    ),
    "safetensors": Target(_safetensors, (ValueError,), lambda: [save({"w": torch.ones(2, 2)})], (b'"BF16"', b'"F4"')),
    "torch": Target(_torch, (ValueError,), _torch_seeds),
    "idx": Target(_idx, (DataError,), lambda: [b"\0\0\x08\x02" + b"\0\0\0\2" * 2 + b"abcd"], (b"\x1f\x8b", b"\xff")),
    "npz": Target(_npz, (DataError,), _npz_seeds),
}
"""Name -> decoder."""

if hasattr(audit, "read_log"):
    TARGETS["audit"] = Target(_audit, (audit.AuditError,), _audit_seeds, _JSON)


def attempt(name: str, data: bytes) -> bool:
    """Decode an input: whether it was accepted; an error of another kind than documented is raised."""
    target = TARGETS[name]
    try:
        target.decode(data)
    except target.errors as error:
        if not str(error):
            raise AssertionError(f"{name}: an error without a message") from error
        return False
    return True


def mutations(name: str, chance: Any) -> Iterator[bytes]:
    """Inputs without end: seeds changed at random, one to eight times."""
    target = TARGETS[name]
    seeds = target.seeds()
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((0, 1, 1, 2, 4, 8))):
            data = _changed(data, chance, seeds, target.words)
        yield bytes(data)


def _changed(data: bytearray, chance: Any, seeds: list[bytes], words: tuple[bytes, ...]) -> bytearray:
    """One change: a bit, a byte, a piece cut out, doubled or replaced by a word, a splice, or an end cut off."""
    place = chance.randrange(len(data) + 1)
    end = min(len(data), place + chance.choice((1, 2, 4, 16, 64)))
    match chance.randrange(8):
        case 0 if place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        case 1 if place < len(data):
            data[place] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        case 2:
            del data[place:end]
        case 3:
            data[place:place] = data[place:end]
        case 4 | 5 if words:
            data[place : place if chance.random() < 0.5 else end] = chance.choice(words)
        case 6:
            other = chance.choice(seeds)
            data[place:] = other[chance.randrange(len(other) + 1) :]
        case 7:
            del data[place:]
    return data
