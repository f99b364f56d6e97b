"""What the mathematical tests share: runs of the library, a spy on its gradients, and the oracles' view of a task."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from oracle.methods import Params
from undrift.algorithms import ALGORITHMS, make
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Correction
from undrift.core.method.view import Sums
from undrift.core.model.flat_model import Vector
from undrift.core.model.oracle import Oracle
from undrift.core.model.random import generator
from undrift.core.records.types import Array, Broadcast, ClientState, Local, ServerState, Upload
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.tasks.task import Task
from undrift.engine.round.simulation import Simulation
from undrift.testing import Quadratics
from undrift.testing.rounds import states_of

LABELLED = (
    "fedlc",
    "fedrs",
    "fedntd",
    "fedvls",
    "feddecorr",
    "feduv",
    "fedrod",
    "fedas",
    "fedpac",
    "pfedfda",
    "fedloge",
)
"""Methods that read labels, logits or features."""

LATE = {name for name in ALGORITHMS if make(name).schedule.overlaps}
"""Methods that do not wait for a cohort: tests/algorithms/test_asynchronous.py holds them."""
NETWORK = {name for name in ALGORITHMS if make(name).needs.model}
"""Methods whose model has parts of its own, such as adapters: tests/algorithms/test_adapters.py holds those."""
PLAIN = [x for x in ALGORITHMS if x not in ("moon", "fedsol", "feddisco", "fedlaw", *LABELLED, *LATE, *NETWORK)]
"""The algorithms that need only a loss, no network, labels or proxy data: those that run on quadratics."""


@dataclass
class Frame:
    """One round: the state after it and what was uploaded in it."""

    before: ServerState
    after: ServerState
    uploads: dict[int, Upload]
    states: dict[int, dict[int, ClientState]]
    population: int

    @property
    def w(self) -> Tensor:
        """The global model after the round."""
        return self.after.params

    def client(self, slot: str, name: str) -> list[Tensor]:
        """A field of every client's state, zero for those that never took part."""
        out = []
        for client in range(self.population):
            last = self.after.accepted.get(client)
            kept = None if last is None else self.states[client][last].parts[slot]
            out.append(torch.zeros_like(self.w) if kept is None else getattr(kept, name))
        return out


def part_of(record: ServerState | Broadcast | ClientState | Upload, slot: str) -> Any:
    """What a block keeps or sends in a record; its type is the block's own."""
    return record.parts[slot]


def watch(
    algorithm: Algorithm, task: Task, local: Local, rounds: int, cohort: int | None = None, seed: int = 0
) -> list[Frame]:
    """The rounds of a run, one by one; no upload may be refused. Client states are those of the frame's own round."""
    simulation = Simulation(algorithm, task, local, cohort=cohort, seed=seed)
    state, frames = simulation.start(), []
    for _ in range(rounds):
        clients = simulation.sample(state.round)
        broadcast = server.send(algorithm, state, simulation.job.setting)
        gate = Gate(algorithm, local, broadcast, clients)
        total, uploads = gate.total(), {}
        for client in clients:
            upload = simulation.worker.visit(client, broadcast, state.accepted.get(client), gate)
            assert upload is not None and gate.admit(upload, total) is None, gate.rejections
            uploads[client] = upload
        after = simulation.close(state, broadcast, total)
        states = {client: dict(held) for client, held in states_of(simulation).items()}
        frames.append(Frame(state, after, uploads, states, task.population))
        state = after
    return frames


def path(
    algorithm: Algorithm, task: Task, local: Local, rounds: int, cohort: int | None = None, seed: int = 0
) -> Tensor:
    """The global models after each round, one per row; no upload may be refused."""
    rows = []
    for state, record in Simulation(algorithm, task, local, cohort=cohort, seed=seed).rounds(rounds):
        assert not record.rejections
        rows.append(state.params)
    return torch.stack(rows)


def close(a: Any, b: Any, tolerance: Any = 1e-10) -> None:
    """Both agree to the tolerance, relative to the largest magnitude or absolutely below one."""
    a, b = (torch.as_tensor(x, dtype=torch.float64).squeeze() for x in (a, b))
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= tolerance * max(1.0, float(b.abs().max())), f"{a} is not {b}"


def close_with_decay(algorithm: Algorithm, task: Task, local: Local, decay: float, expected: Tensor) -> None:
    """Six rounds of three clients with weight decay agree with an oracle's.

    Slopes lose their decay along a straight line, so methods that read them agree to a twentieth of its effect: see
    tests/algorithms/test_oracle.py.
    """
    found = path(algorithm, task, replace(local, weight_decay=decay), 6, 3, 2)
    if decay and Sums.SLOPES in algorithm.uses:
        effect = (path(algorithm, task, local, 6, 3, 2) - expected).norm(dim=1).max()
        assert (found - expected).norm(dim=1).max() < effect / 20
    else:
        close(found, expected)


def rounds_to(exact: Any, *printed: str) -> None:
    """The sheet's digits are the rounding of the exact values; a tie may go either way."""
    values = torch.as_tensor(exact, dtype=torch.float64).reshape(-1).tolist()
    for value, text in zip(values, printed, strict=True):
        assert abs(value - float(text)) <= 0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-12, f"{value} as {text}"


@dataclass
class Look:
    """A gradient the loop asked for: the offset, and the gradients at the unperturbed point and at the offset."""

    step: int
    offset: Tensor | None
    here: Tensor
    there: Tensor
    w: Tensor


@dataclass
class Spy:
    """All gradients the loop descends along: of every step the last one asked for."""

    looks: list[Look] = field(default_factory=list)

    @property
    def steps(self) -> list[Look]:
        """The last look of each step: a first look at the unperturbed point is followed by one at the same point."""
        pairs = zip(self.looks, [*self.looks[1:], None], strict=True)
        return [a for a, b in pairs if not (b and a.offset is None and b.offset is not None and torch.equal(a.w, b.w))]


def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Record every gradient from now on."""
    seen, original = Spy(), Oracle.gradient

    def gradient(self: Oracle, offset: Tensor | None = None) -> Tensor:
        moved = None if offset is None else offset.clone()
        here = original(self).clone()
        out = original(self, moved)
        seen.looks.append(Look(self.step, moved, here, out.clone(), self.model.w.clone()))
        return out

    monkeypatch.setattr(Oracle, "gradient", gradient)
    return seen


class View:
    """A task and the random choices of a simulation as the oracles want them: named tensors, lists of batches."""

    def __init__(self, task: Task, local: Local, cohort: int | None = None, seed: int = 0) -> None:
        self.task, self.local, self.seed = task, local, seed
        self.size = cohort or task.population
        self.population = task.population
        self.simulation = Simulation(Algorithm(), task, local, cohort=cohort, seed=seed)
        self.model = task.model()

    def start(self) -> Params:
        """The initial model."""
        return {name: p.detach().clone() for name, p in self.task.model().named_parameters()}

    def examples(self, client: int) -> int:
        """How many examples a client has."""
        return self.task.examples(client)

    def cohort(self, round: int) -> list[int]:
        """The clients of a round."""
        return self.simulation.sample(round)

    def batches(self, client: int, round: int) -> list[Any]:
        """The batches of all epochs of a round."""
        order = generator(self.seed, round, client, "batches")
        epochs = (self.task.batches(client, self.local.batch_size, order) for _ in range(self.local.epochs))  # type: ignore[arg-type]
        return list(chain.from_iterable(epochs))

    def gradient(self, params: Params, batch: Any) -> Params:
        """The gradient of the mean loss on a batch, by a plain backward pass."""
        named = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, p in named.items():
                p.copy_(params[name])
        grads = torch.autograd.grad(self.task.loss(self.model, batch), list(named.values()))
        return dict(zip(named, grads, strict=True))


def flat(models: Sequence[Params]) -> Tensor:
    """The oracle's models, one per row."""
    return torch.stack([torch.cat([x.reshape(-1) for x in model.values()]) for model in models])


def optimum(task: Quadratics) -> Tensor:
    """Where the mean gradient of all clients is zero."""
    pulls = [a @ b for a, b in zip(task.curvatures, task.optima, strict=True)]
    out: Tensor = torch.linalg.solve(sum(task.curvatures), sum(pulls))
    return out


def beginning(task: Quadratics) -> Tensor:
    """The initial model."""
    return torch.cat([x.reshape(-1) for x in task.start.values()])


class Extra(NamedTuple):
    """One of each kind of field."""

    v: Vector
    a: Array
    x: float
    k: int


@dataclass(frozen=True)
class Talker(Correction[None, None, None, Extra]):
    """Uploads one of each kind of field."""

    def sizes(self) -> Any:
        return {"a": 5}

    def finish(self, state: Any, end: Any) -> Any:
        return Extra(end.delta.clone(), torch.full((5,), 0.1), 0.1, 3), None
