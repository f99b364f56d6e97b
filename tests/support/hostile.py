"""Replies of a hostile node, drawn at random from honest ones: uploads and partial sums, for every aggregation rule."""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from undrift import Algorithm, Local, Simulation
from undrift.core.method.aggregation import Aggregation
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.packed_sum import PackedSum
from undrift.core.records.place import place_of
from undrift.core.records.types import Upload
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.server.wire import flatten
from undrift.engine.flower.records import Answer, claim, encode
from undrift.engine.flower.server.receive import Reply
from undrift.engine.flower.server.tally import Tally
from undrift.engine.worker.partial_sum import Partial, TrainedClient
from undrift.testing import clinic

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
NAN, INF = float("nan"), float("inf")
NODE, ONE, REST = [3, 5, 7], [5], [0, 4, 6]
"""The clients of a hostile node with several, of one with a single one, and of the honest node beside either."""

Tensors = dict[str, Tensor]
Change = Callable[[Random, RecordDict, Tensors], RecordDict]


class Trap:
    """Fires when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('unpickled')",)


def npz() -> bytes:
    file = BytesIO()
    np.savez(file, np.zeros(3))
    return file.getvalue()


def pickled_npy() -> bytes:
    file = BytesIO()
    np.save(file, np.array([Trap()], dtype=object), allow_pickle=True)
    return file.getvalue()


FOREIGN = (npz(), pickled_npy(), pickle.dumps(Trap()), b"", b"\x93NUMPY", b"PK\x03\x04")
NUMBERS = (NAN, INF, -INF, -5.0, -1.0, -0.0, 0.0, 1e-300, 1e-12, 1e-3, 2.5, 1e5, 1e11, 1e18, 1e35, 1e300)


class Round:
    """One round with one rule: what honest nodes reply, and a server that takes replies.

    Args:
        rule: the aggregation rule.
        seeds: how many honest uploads of each client are trained.
    """

    def __init__(self, rule: Aggregation, seeds: int = 3) -> None:
        self.algorithm = Algorithm(aggregation=rule)
        task = clinic(self.algorithm)
        trained = [Simulation(self.algorithm, task, LOCAL, seed=seed) for seed in range(seeds)]
        self.state = trained[0].start()
        self.broadcast = server.send(self.algorithm, self.state, trained[0].job.setting)
        self.uploads: dict[int, list[Upload]] = {client: [] for client in (*NODE, *REST)}
        gate = self.gate()
        for simulation in trained:
            for client, own in self.uploads.items():
                upload = simulation.worker.visit(client, self.broadcast, None, gate)
                assert upload is not None, gate.rejections
                own.append(upload)
        self.bound = 1.5 * max(float(u.delta.norm()) for own in self.uploads.values() for u in own)
        self.bounded = Simulation(self.algorithm, task, LOCAL, bound=self.bound)
        self.rest = self.content(self.part(Random(0), REST))

    def gate(self) -> Gate:
        return Gate(self.algorithm, LOCAL, self.broadcast, range(8), cohort=8)

    def part(self, chance: Random, clients: list[int]) -> Partial:
        """An honest partial sum, of uploads as trained or a little longer or shorter."""
        gate = self.gate()
        part = Partial(gate.total())
        for client in clients:
            part.admit(TrainedClient(self.upload(chance, client), 0.1, {}), gate, place_of("cpu"))
        assert not gate.rejections, gate.rejections
        return part

    def upload(self, chance: Random, client: int) -> Upload:
        chosen = chance.choice(self.uploads[client])
        return replace(chosen, delta=chosen.delta * chance.choice([1.0, chance.uniform(0.2, 1.2)]))

    def content(self, part: Partial) -> RecordDict:
        """A node's reply: one client's upload, or the partial sum of several."""
        tensors, summary = part.flatten()
        return Answer(0, summary, tensors).content()

    def honest(self, chance: Random, clients: list[int]) -> tuple[RecordDict, Tensors]:
        if len(clients) > 1:
            part = self.part(chance, clients)
            tensors, summary = part.flatten()
        else:
            upload = self.upload(chance, clients[0])
            fact = [clients[0], upload.examples, upload.gradients, upload.loss, 0.1, 1.0, 1.0, {}]
            tensors, summary = flatten(upload), json.dumps({"visits": [fact], "rejections": []})
        return Answer(0, summary, tensors).content(), tensors

    def tally(self, clients: list[int]) -> tuple[Tally, list[Any]]:
        sent = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=n), content=claim(())) for n in range(2)]
        tally = Tally(self.algorithm, LOCAL, self.bound, self.broadcast, frozenset([*clients, *REST]))
        tally.expect(sent[0], clients)  # type: ignore[arg-type]
        tally.expect(sent[1], REST)  # type: ignore[arg-type]
        return tally, sent

    def take(self, content: RecordDict, clients: list[int]) -> tuple[Tally, bool]:
        """The round after a reply, and whether the reply was accepted."""
        tally, sent = self.tally(clients)
        tally.take(Reply(sent[0], SimpleNamespace(content=content)))  # type: ignore[arg-type]
        return tally, bool(tally.total.clients)

    def moved(self, tally: Tally) -> float:
        """How far the model moves if the round ends with the honest node's reply besides."""
        sent = next(m for m in tally.messages if tally.clients_of(m) == REST)
        tally.take(Reply(sent, SimpleNamespace(content=copied(self.rest))))  # type: ignore[arg-type]
        assert {*REST} <= {*tally.total.clients}, "honest clients must stay in"
        after = self.bounded.close(self.state, self.broadcast, tally.total)
        return float(torch.linalg.vector_norm((after.params - self.state.params).double()))


def copied(content: RecordDict) -> RecordDict:
    """A reply that can be taken apart again: arrays are removed from it as they are read."""
    head = ConfigRecord(dict(content.config_records["undrift"]))
    return RecordDict({"undrift": head, "arrays": ArrayRecord(dict(content.array_records["arrays"]))})


def fuzzed(chance: Random, content: RecordDict, tensors: Tensors) -> tuple[str, bool, RecordDict]:
    """A reply changed at random: what was done to it, whether it must be refused, and the reply."""
    name = chance.choice(list(CHANGES))
    bad, change = CHANGES[name]
    return name, bad, change(chance, content, tensors)


def _arrayed(made: Callable[[Random, Array], Mapping[str, Any]]) -> Change:
    """Change the description or the bytes of an array."""

    def change(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
        arrays = content.array_records["arrays"]
        name = chance.choice([name for name, x in tensors.items() if x.numel()])
        a = arrays[name]
        arrays[name] = Array(
            **{"dtype": a.dtype, "shape": a.shape, "stype": a.stype, "data": a.data, **made(chance, a)}
        )
        return content

    return change


def _valued(change: Callable[[Random, Tensor], Tensor], *names: str) -> Change:
    """Change the values of a tensor; of a sum, of what it sums."""

    def changed(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
        known = [name for name in tensors if tensors[name].numel() and (not names or name.partition("/")[0] in names)]
        if known:
            name = chance.choice(known)
            x = change(chance, tensors[name].clone())
            content.array_records["arrays"][name] = encode({name: x})[name]
        return content

    return changed


def _resummed(change: Callable[[Random, Tensor], Tensor], *names: str, times: int = 1) -> Change:
    """Change what some sums hold, and pack them again; in an upload, the values themselves."""

    def changed(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
        wanted = [n for n in tensors if (not names or any(n.startswith(name) for name in names)) and tensors[n].numel()]
        for name in chance.sample(wanted, min(times, len(wanted))):
            x = tensors[name]
            if name.endswith("/sum"):
                total = ExactSum(PackedSum(x).size)
                total.add(change(chance, PackedSum(x).value()).double().clamp(-(2.0**41), 2.0**41).nan_to_num(1.0))
                x = total.pack().data
            elif x.dtype.is_floating_point:
                x = change(chance, x.clone()).to(x.dtype)
            content.array_records["arrays"][name] = encode({name: x})[name]
        return content

    return changed


def _put(value: Callable[[Random], float]) -> Callable[[Random, Tensor], Tensor]:
    def change(chance: Random, x: Tensor) -> Tensor:
        number = value(chance) if x.dtype.is_floating_point else chance.randrange(128)
        x.view(-1)[chance.randrange(x.numel())] = torch.tensor(number, dtype=torch.float64).to(x.dtype)
        return x

    return change


def _summary(change: Callable[[Random, dict[str, Any]], Any]) -> Change:
    def changed(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
        facts = json.loads(str(content.config_records["undrift"]["summary"]))
        facts = change(chance, facts)
        content.config_records["undrift"]["summary"] = facts if isinstance(facts, str) else json.dumps(facts)
        return content

    return changed


def _fact(place: int, values: tuple[Any, ...]) -> Change:
    def change(chance: Random, facts: dict[str, Any]) -> dict[str, Any]:
        chance.choice(facts["visits"])[place] = chance.choice(values)
        return facts

    return _summary(change)


def _headed(name: str, values: tuple[Any, ...]) -> Change:
    def changed(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
        content.config_records["undrift"][name] = chance.choice(values)
        return content

    return changed


def _renamed(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
    name = chance.choice(list(tensors))
    content.array_records["arrays"][chance.choice(["other", f"{name}x", "upload0/x", "x/sum"])] = content.array_records[
        "arrays"
    ].pop(name)
    return content


def _extra(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
    name = chance.choice(["other", "parts.drift.c", "more/sum", "delta2"])
    content.array_records["arrays"][name] = encode({name: torch.zeros(chance.choice([0, 1, 500]))})[name]
    return content


def _heavier(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
    """More weight in the sum and in the summary alike, and a sum of displacements as long as that allows."""
    factor = 10 ** chance.uniform(-6, 6)
    content = _resummed(lambda _, x: x * factor, "weight/", "delta", "aggregation.", "extra.", "weights.", times=9)(
        chance, content, tensors
    )

    def change(_: Random, facts: dict[str, Any]) -> dict[str, Any]:
        for visit in facts["visits"]:
            visit[5] *= factor
        return facts

    return _summary(change)(chance, content, tensors)


def _mixed(chance: Random, content: RecordDict, tensors: Tensors) -> RecordDict:
    """Several changes at once."""
    for _ in range(chance.randint(2, 4)):
        try:
            _, _, content = fuzzed(chance, content, tensors)
        except (KeyError, TypeError, ValueError, RecursionError):  # a change before left nothing to change
            break
    return content


_ODD: tuple[Any, ...] = (True, 2.5, -1, 0, 1 << 62, "1", "", [], [1], [1.5, 2.5], b"x", "\x00\n\x1b[31m" * 9)
_OWN = ("parts.aggregation", "aggregation.")

CHANGES: dict[str, tuple[bool, Change]] = {
    "another serialisation": (True, _arrayed(lambda c, a: {"stype": c.choice(["numpy.ndarray", "", "pickle"])})),
    "foreign bytes": (True, _arrayed(lambda c, a: {"data": c.choice([x for x in FOREIGN if x != a.data])})),
    "foreign file": (True, _arrayed(lambda c, a: {"data": c.choice(FOREIGN), "stype": "numpy.ndarray"})),
    "another dtype": (True, _arrayed(lambda c, a: {"dtype": c.choice(["object", "complex64", "", "S1", "float128"])})),
    "another shape": (
        True,
        _arrayed(lambda c, a: {"shape": c.choice([(-1,), (1 << 40,), (0,), (1,) * 9 + a.shape, (*a.shape, 2)])}),
    ),
    "truncated": (True, _arrayed(lambda c, a: {"data": a.data[: c.randrange(len(a.data))]})),
    "extended": (True, _arrayed(lambda c, a: {"data": a.data + c.randbytes(c.randint(1, 64))})),
    "random bytes": (False, _arrayed(lambda c, a: {"data": c.randbytes(len(a.data))})),
    "flipped bits": (False, _arrayed(lambda c, a: {"data": flipped(c, a.data)})),
    "half": (True, _valued(lambda c, x: x.reshape(-1).half())),
    "missing": (True, _renamed),
    "added": (True, _extra),
    "stale": (True, _headed("round", (-1, 1, 7, "0", 0.0, True))),
    "version": (True, _headed("version", (0, 99, "4", 4.5))),
    "no records": (True, lambda c, content, t: RecordDict()),
    "no arrays": (True, lambda c, content, t: RecordDict({"undrift": content["undrift"]})),
    "no head": (True, lambda c, content, t: RecordDict({"arrays": content["arrays"]})),
    "summary: garbage": (True, _summary(lambda c, f: c.choice(["", "{", "[1]", "{}", "nul", "[" * 3000, "x" * 10**5]))),
    "summary: client": (False, _fact(0, (3, 9, -1, 10**30, None, "5", [], NAN))),
    "summary: examples": (False, _fact(1, (0, -5, 10**18, NAN, "9", None, 2**31))),
    "summary: loss": (False, _fact(3, (*NUMBERS, None, "x", []))),
    "summary: weight": (False, _fact(5, (*NUMBERS, None, "x", []))),
    "summary: reports": (False, _fact(7, (None, [], {"a": None}, {"a" * 500: 1.0}, {"aggregation.weight": NAN}))),
    "not finite": (True, _valued(_put(lambda c: c.choice([NAN, INF, -INF])), "delta", "buffers", "loss")),
    "huge": (False, _valued(_put(lambda c: c.choice([-1, 1]) * 10 ** c.uniform(2, 35)), "delta")),
    "far": (False, _resummed(lambda c, x: x * 10 ** c.uniform(-3, 12), "delta", "sum", "extra.", "upload")),
    "numbers": (False, _resummed(_put(lambda c: c.choice(NUMBERS)), times=2)),
    "own part": (False, _resummed(_put(lambda c: c.choice(NUMBERS)), *_OWN, times=2)),
    "own part reversed": (False, _resummed(lambda c, x: -x * c.choice([1, 0.5, 1.001, 3]), *_OWN, "weights.", times=3)),
    "heavier": (False, _heavier),
    "client": (False, _valued(lambda c, x: x * 0 + c.choice([-7, 0, 3, 4, 5, 99]), "client", "clients")),
    "examples": (False, _valued(lambda c, x: x * 0 + c.choice([-5, 0, 1, 10**9, 2**40]), "examples")),
    "steps": (True, _valued(lambda c, x: x + c.choice([-9, -1, 1, 10**12]), "steps", "round", "client")),
    "head of odd types": (False, lambda c, content, t: _headed(c.choice(["round", "summary"]), _ODD)(c, content, t)),
    "mixed": (False, _mixed),
}
"""What a hostile node may do: whether it must be refused whatever it comes to, and the change."""

for _name in ("not finite", "steps"):  # sums have no such tensors: the change leaves them alone
    CHANGES[_name] = (False, CHANGES[_name][1])


def flipped(chance: Random, data: bytes) -> bytes:
    """Bytes with one to eight bits changed."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def replies(round: Round, clients: list[int], count: int, seed: int = 0) -> Iterator[tuple[str, bool, RecordDict]]:
    """Hostile replies of a node with these clients."""
    chance = Random(seed)
    pool = [round.honest(chance, clients) for _ in range(20)]
    for _ in range(count):
        content, tensors = chance.choice(pool)
        yield fuzzed(chance, copied(content), tensors)
