"""What a round costs: seconds, memory, traffic and disk from the sizes of a run and the constants of a machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Literal

import torch

from undrift.core.method.algorithm import Algorithm, cost, vectors_sent
from undrift.core.model.flat_model import Layout
from undrift.core.records.exact_sum import LONG
from undrift.core.records.types import Local
from undrift.core.server.total import Total
from undrift.planning.machine import DEFAULTS, Constants, EngineConstants

Engine = Literal["local", "ray", "flower"]

_FLOAT = 4  # bytes of a number in single precision
_SUM, _STEP = 16, 8  # bytes per parameter of an exact sum; of the server step for each: its mean and a new state
_DELTA, _OTHER = 5.0, 7.0  # bytes per parameter of a packed sum: of displacements, which end with zero bits; of others
_GATHERED = 12  # bytes per parameter of the server step of a rule that gathers, besides the uploads
_VECTORS = 8  # bytes per parameter: a worker's model and gradient
_VISIT = 5  # bytes per parameter: a displacement, and the largest tensor's gradient, taken as a quarter of the model
_RECORD, _ACCEPTED = 1000, 100  # bytes of a visit's record; of the last accepted round of a client with state
_CHUNK = 64  # clients in a chunk on Ray


@dataclass(frozen=True)
class RoundSize:
    """The sizes of a round.

    Args:
        clients: registered clients.
        cohort: clients in a round.
        parameters: of the model.
        workers: how many; the local engine has one.
        examples: of a client, in the mean.
        epochs: passes over them in a round.
        batch: examples of a local step.
        engine: "local", "ray" or "flower".
        network: bits per second of the server's connection to the workers, and of theirs; None counts no network.
        fan_in: how many replies are merged into one on their way, by workers on Ray and by edge servers on Flower,
            which also pass on the broadcast; None sends all to the server, as methods that gather do.
        checkpoint_every: rounds between two checkpoints; 0 writes none.
        keep: checkpoints that are kept.
        step: measured seconds of a gradient on an empty batch, for this model; None takes the constants.
        example: measured seconds per gradient and example, for this model; None takes the constants.
        local_steps: of a visit, in the mean; None counts them from examples, epochs and batch.
        activations: bytes that one visit was measured to take; 0 if it was not.
    """

    clients: int = 100
    cohort: int = 10
    parameters: int = 1_000_000
    workers: int = 1
    examples: float = 60.0
    epochs: float = 1.0
    batch: int = 50
    engine: Engine = "local"
    network: float | None = None
    fan_in: int | None = None
    checkpoint_every: int = 1
    keep: int = 2
    step: float | None = None
    example: float | None = None
    local_steps: float | None = None
    activations: int = 0

    def __post_init__(self) -> None:
        for name in ("clients", "cohort", "parameters", "workers", "examples", "epochs", "batch"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be more than 0, got {getattr(self, name)}")
        if self.network is not None and not 0 < self.network < float("inf"):
            raise ValueError(f"network must be a number of bits per second, more than 0, got {self.network}")
        if self.fan_in is not None and self.fan_in < 2:
            raise ValueError(f"fan_in must be 2 or more, got {self.fan_in}")
        if self.cohort > self.clients:
            raise ValueError(f"cohort: {self.cohort} clients per round, but there are only {self.clients} clients")
        if self.engine not in ("local", "ray", "flower"):
            raise ValueError(f"engine must be local, ray or flower, got {self.engine!r}")

    @property
    def steps(self) -> float:
        """Local steps of a visit."""
        if self.local_steps is not None:
            return self.local_steps
        return max(1.0, ceil(self.examples / self.batch) * self.epochs)

    @property
    def chunks(self) -> int:
        """Replies of a round: chunks on Ray, nodes on Flower, none in one process."""
        most = min(self.workers, self.cohort)
        if self.engine == "ray":
            return max(most, min(-(-self.cohort // _CHUNK), 4 * self.workers))
        return most if self.engine == "flower" else 0

    @property
    def levels(self) -> list[int]:
        """How many replies reach each level of a tree of sums, last the server."""
        found = [self.chunks]
        while self.fan_in is not None and found[-1] > self.fan_in:
            found.append(-(-found[-1] // self.fan_in))
        return found


@dataclass(frozen=True)
class MethodSize:
    """What a method costs, as its blocks declare it, in vectors as long as the model.

    Args:
        name: the method.
        down: vectors that a client receives.
        up: vectors that a client uploads.
        short: what a displacement takes on the wire as a share of the model; below 1 the method compresses it.
        received: the share of a vector that a client receives; it has the rest. Nodes on Flower receive as much.
        uploaded: the share of a vector that a client uploads.
        client_state: vectors that a client keeps.
        server_state: vectors that the server keeps, the model included.
        gradients: gradients per local step.
        sums: exact sums as long as the model.
        gathers: the server holds every upload.
        remembers: clients keep a state.
    """

    name: str = "fedavg"
    down: int = 1
    up: int = 1
    client_state: int = 0
    server_state: int = 1
    gradients: int = 1
    sums: int = 1
    gathers: bool = False
    remembers: bool = False
    short: float = 1.0
    received: float = 1.0
    uploaded: float = 1.0

    @property
    def sent(self) -> float:
        """Models that a client's upload takes on the wire."""
        return (self.up - 1 + self.short) * self.uploaded

    @property
    def packed(self) -> float:
        """Bytes per parameter of all sums on the wire."""
        return (_DELTA + (self.sums - 1) * _OTHER) if self.sums else 0.0


def method_size(
    algorithm: Algorithm, local: Local | None = None, name: str = "", layout: Layout | None = None
) -> MethodSize:
    """What a method costs, from its blocks' declarations.

    Args:
        algorithm: the method.
        local: the settings of local training: weight decay adds sums to methods that use slopes.
        name: what to call it; empty is its text.
        layout: of the model: see `cost`.
    """
    declared, local = cost(algorithm, layout), local or Local()
    down, up = vectors_sent(algorithm)
    length = 1 << 20  # longer than any array that a block declares
    sizes = Total(algorithm, local, 0).expected(torch.empty(length, device="meta"), torch.empty(0))
    return MethodSize(
        name or str(algorithm),
        down,
        round(up - algorithm.release.traffic) + 1,
        declared.client_state,
        declared.server_state,
        declared.gradients_per_step,
        list(sizes.values()).count(length),
        declared.gathers,
        algorithm.keeps_buffers(local) or not declared.stateless,
        algorithm.release.traffic,
        declared.down / down,
        declared.up / up,
    )


@dataclass(frozen=True)
class RoundCost:
    """What a round costs.

    Args:
        seconds: from the broadcast to the new model, each worker on a processor of its own.
        parts: the seconds by what they are spent on; workers and merging overlap, so that they add up to more. "tree"
            is what merging on the way takes.
        processor: processor seconds of all workers together and of the server.
        memory: peak bytes of the server and of a worker; in one process of both together, as the server's.
        traffic: bytes that leave and reach the server, and that pass `between` the others in a tree; `clients` is what
            single clients would receive and upload.
        disk: bytes written in a round; of all states, once every client took part twice, and of the checkpoints.
    """

    seconds: float
    parts: Mapping[str, float]
    processor: Mapping[str, float]
    memory: Mapping[str, float]
    traffic: Mapping[str, float]
    disk: Mapping[str, float]


@dataclass(frozen=True)
class CostModel:
    """Predicts a round; docs/evidence/performance.md has the formulas.

    Args:
        size: the sizes of the round.
        method: what the method costs.
        constants: the machine's: see `undrift doctor --measure`.
    """

    size: RoundSize
    method: MethodSize = MethodSize()
    constants: Constants = DEFAULTS

    def fixed_seconds(self) -> float:
        """Processor seconds of a visit without its local steps."""
        method, c, length = self.method, self.constants, self.size.parameters
        kept = c.file + _FLOAT * length * method.client_state * c.byte if method.remembers else 0.0
        upload = method.up * c.touch if method.gathers else 0.0
        return c.visit + length * (c.visit_parameter + method.sums * c.sum + upload) + kept

    def visit_seconds(self) -> float:
        """Processor seconds of a visit: loading the model, local steps, the sum of the upload, the client's state."""
        size, method, c, length = self.size, self.method, self.constants, self.size.parameters
        gradients = method.gradients
        held = method.down - 1 + method.client_state  # vectors that a block reads in a step
        step = gradients * (c.step if size.step is None else size.step)
        if size.step is None:
            step += length * (gradients * c.step_parameter + held * c.touch)
        example = gradients * (length * c.gradient if size.example is None else size.example)
        return self.fixed_seconds() + size.steps * step + size.epochs * size.examples * example

    def predict(self) -> RoundCost:
        """What a round costs."""
        size, method, c, length = self.size, self.method, self.constants, self.size.parameters
        chunks = size.chunks
        engine = {"ray": c.ray, "flower": c.flower}.get(size.engine, EngineConstants())
        gathered = length * method.up * c.touch * size.cohort if method.gathers else 0.0
        training = size.cohort * self.visit_seconds() + max(chunks, 1) * c.open
        replying = chunks * (engine.worker + length * method.sums * c.pack)
        replying += gathered if chunks else 0.0
        levels = self._levels()
        requests = sum(levels) if size.engine == "ray" else levels[-1]  # Ray's driver requests every merge
        merging = requests * engine.server + levels[-1] * length * method.sums * (c.merge + engine.taken)
        merging += gathered if chunks else 0.0
        tree, passed = self._tree(levels, engine)
        closing = length * (method.server_state * c.touch + method.sums * c.close)
        closing += c.open if chunks else 0.0
        closing += length * size.cohort * c.gather if method.gathers else 0.0
        each = size.cohort * c.client
        traffic, disk = self.traffic(), self.disk()
        checkpoint = disk["checkpoint"] * (c.byte + 1 / c.disk)
        carried = traffic["out"] + traffic["in"] + passed
        lines = -(-chunks // size.workers) / chunks if chunks else 1.0  # the share of the longest worker
        parts = {
            "workers": (training + replying) * lines,
            "server": merging + each + closing,
            "tree": sum(tree),
            "network": 0.0 if size.network is None else 8 * carried / size.network,
            "disk": size.cohort * disk["state"] / c.disk + checkpoint,
            "engine": engine.latency,
        }
        last = merging / chunks if chunks else 0.0  # the last reply is merged when all workers are done
        if len(levels) > 1:
            last = sum(tree) + merging  # replies of a level are merged when all are there
        overlapping = max(parts["workers"] + last, merging, size.cohort * disk["state"] / c.disk)
        seconds = overlapping + each + closing + parts["network"] + engine.latency + checkpoint
        return RoundCost(
            seconds,
            parts,
            {"workers": training + replying + self._merged(levels, tree), "server": parts["server"]},
            self.memory(),
            traffic,
            {name: disk[name] for name in ("round", "states", "checkpoints")},
        )

    def _levels(self) -> list[int]:
        """How many replies reach each level; a method that gathers has the server's alone."""
        return [self.size.chunks] if self.method.gathers else self.size.levels

    def _tree(self, levels: list[int], engine: EngineConstants) -> tuple[list[float], float]:
        """The seconds of each level below the server, where groups merge side by side, and the bytes that pass one.

        A group on Ray is merged by a worker; on Flower by an edge server of its own.
        """
        size, method, c, length = self.size, self.method, self.constants, self.size.parameters
        each = length * method.sums * (c.merge + engine.taken)
        each += engine.server if size.engine == "flower" else 0.0
        seconds, passed = [], 0.0
        for below, above in pairwise(levels):
            group = -(-below // above)
            turns = 1 if size.engine == "flower" else -(-above // size.workers)
            seconds.append(turns * (group * each + engine.worker + length * method.sums * c.pack))
            passed += group * length * method.packed
            if size.engine == "flower":
                passed += group * _FLOAT * length * method.down * method.received
        return seconds, passed

    def _merged(self, levels: list[int], tree: list[float]) -> float:
        """Processor seconds of all merging below the server."""
        turns = (1 if self.size.engine == "flower" else -(-above // self.size.workers) for above in levels[1:])
        return sum(x / turn * above for x, turn, above in zip(tree, turns, levels[1:], strict=True))

    def memory(self) -> dict[str, float]:
        """Peak bytes of the server and of a worker; in one process the server's are those of both."""
        size, method, process = self.size, self.method, self.constants.process
        length = size.parameters
        uploads = _FLOAT * method.up * size.cohort if method.gathers else 0
        long = length >= LONG  # then sums stay packed
        sums = method.packed if long else _SUM * method.sums
        step = _STEP * method.sums or _GATHERED
        listed = size.cohort * _RECORD + (size.clients * _ACCEPTED if method.remembers else 0)
        own = _FLOAT * (2 * method.client_state + 2 * (method.gradients - 1))  # what the method needs in a step
        if size.engine == "local":
            training = max(own + _VISIT, step)  # the server step begins when the displacement is gone
            total = length * (_FLOAT * method.server_state + _VECTORS + sums + uploads + training)
            return {"server": process + listed + max(total, size.activations), "worker": 0.0}
        reply = uploads if method.gathers else method.packed
        held = 0 if long and size.chunks == 1 else sums  # the only reply is the sum
        server = length * (_FLOAT * (method.server_state + method.down) + held + uploads + reply + step)
        each = _FLOAT * method.up * -(-size.cohort // max(size.chunks, 1)) if method.gathers else 0
        written = method.packed if long else 0  # the reply is written when the displacement is gone
        busy = max(_VISIT + own, written)
        worker = length * (_VECTORS + _FLOAT * method.down + sums + each + busy)
        return {"server": process + listed + server, "worker": process + max(worker, size.activations)}

    def traffic(self) -> dict[str, float]:
        """Bytes that leave and reach the server, and what the round's clients would receive and upload one by one."""
        size, method, model = self.size, self.method, _FLOAT * self.size.parameters
        uploads = size.cohort * model * method.sent
        cut = (method.received, method.uploaded) if size.engine == "flower" else (1.0, 1.0)
        levels = self._levels()
        reply = levels[-1] * size.parameters * method.packed * cut[1]
        inward = (uploads if method.gathers and size.chunks else 0.0) + reply
        if size.engine == "flower" and levels == [size.cohort] and method.short < 1:
            inward = uploads  # a node with one client sends its compressed upload, others a sum
        readers = 0 if size.engine == "local" else min(size.workers, size.cohort)
        between = sum(levels[:-1]) * size.parameters * method.packed * cut[1]
        if size.engine == "flower":
            readers = levels[-1]
            between += sum(levels[:-1]) * model * method.down * cut[0]
        return {
            "out": float(readers * model * method.down * cut[0]),
            "in": float(inward),
            "between": float(between),
            "clients": float(size.cohort * model * method.down * method.received + uploads),
        }

    def disk(self) -> dict[str, float]:
        """Bytes of a client's state and a checkpoint, written in a round in the mean, and kept in the end."""
        size, method, model = self.size, self.method, float(_FLOAT * self.size.parameters)
        state = model * method.client_state
        checkpoint = model * method.server_state + (16 * size.clients if method.remembers else 0)
        each = checkpoint / size.checkpoint_every if size.checkpoint_every else 0.0
        return {
            "state": state,
            "checkpoint": each,
            "round": size.cohort * state + each,
            "states": 2 * size.clients * state,  # the last accepted one and the one before
            "checkpoints": size.keep * checkpoint if size.checkpoint_every else 0.0,
        }
