"""Measures what the parts of a round cost on this machine: `undrift doctor --measure`.

All figures are processor time of one thread, the smallest of some repetitions, so that other programs disturb little.
What Ray and Flower add comes from empty rounds on two workers, with a small and a large model.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Generator, Tensor, nn

from undrift.algorithms import make
from undrift.core.model.flat_model import Vector, bind, layout_of
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.types import Broadcast, ClientState, Local, Upload
from undrift.core.server import step as server
from undrift.core.server.total import Total
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.backend import Backend
from undrift.engine.round.record import Record
from undrift.engine.round.simulation import Simulation
from undrift.engine.stores.store import DiskStore
from undrift.engine.worker.job import Job
from undrift.engine.worker.measure import seconds_in_turns, visit_call
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.models import MLP
from undrift.planning.machine import DEFAULTS, Constants, EngineConstants
from undrift.util.steps import tell
from undrift.util.storage.files import write

WIDTH = 900
"""Units of a hidden layer of the perceptron on which figures per parameter are measured."""
SMALL, LARGE = 1000, 1_000_000
"""Parameters of the two models of empty rounds."""

_FEW, _MORE = 4, 36  # examples of a batch
_STEPS = 9  # local steps of the longer visit
_VISITS = 5  # clients of the longer call
_CLIENTS = 200  # of the round whose lists are timed
_STATE = 100  # numbers in the smaller state of a client
_SORTED = 1 << 16  # coordinates that are sorted to time a rule that gathers
_WORKERS = 2
_MANY = 18  # chunks of an empty round with many

Calls = dict[str, Callable[[], object]]


def least_seconds(calls: Calls, repeats: int = 5) -> dict[str, float]:
    """The least processor seconds of each call.

    Args:
        calls: what is timed, by name.
        repeats: how often, after a first call that warms up.
    """
    taken = seconds_in_turns(calls, repeats, clock=time.process_time)
    return {name: min(seconds) for name, seconds in taken.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread, as workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def perceptron_job(width: int, steps: int, batch: int) -> Job:
    """FedAvg with a perceptron of two hidden layers on random rows, for some clients.

    Args:
        width: units of a hidden layer.
        steps: local steps of a visit.
        batch: examples of each.
    """
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(steps * batch, 32, generator=draw)
    targets = torch.randint(10, (steps * batch,), generator=draw)
    task = TensorTask(lambda: MLP(32, 10, width, 2), inputs, targets, [torch.arange(steps * batch)] * _VISITS)
    return Job(make("fedavg"), task, Local(lr=0.01, batch_size=batch))


def measure(repeats: int = 10, width: int = WIDTH) -> Constants:
    """The constants of this machine, with the default constants of engines: see `measure_engines`.

    Args:
        repeats: how often each part is timed.
        width: units of a hidden layer of the larger perceptron.
    """
    with one_thread(), torch.random.fork_rng(devices=[]), TemporaryDirectory(prefix="undrift-") as folder:
        tell("measuring this machine")
        size = layout_of(perceptron_job(width, 1, 1).task.model()).size
        kept = min(size, 1_000_000)
        calls = {**_visits(width), **_vectors(width), "lists": _lists(), **_states(Path(folder), kept)}
        return _constants(least_seconds(calls, repeats), size, kept, _disk_speed(Path(folder), 4 * kept))


def _constants(t: Mapping[str, float], size: int, kept: int, disk: float) -> Constants:
    """The constants that follow from the seconds of calls that differ in one size each.

    Args:
        t: seconds by the name of the call.
        size: parameters of the larger perceptron.
        kept: numbers in the larger state of a client.
        disk: bytes per second that reach the disk.
    """
    others = _VISITS - 1
    tiny, long = (t[f"tiny {_VISITS} {steps}"] / _VISITS for steps in (1, _STEPS))
    step = (long - tiny) / (_STEPS - 1)
    visit = (t[f"tiny {_VISITS} 1"] - t["tiny 1 1"]) / others
    wide = (t[f"wide {_VISITS} 1 {_FEW}"] - t[f"wide 1 1 {_FEW}"]) / others
    few, more = t[f"wide 1 {_STEPS} {_FEW}"], t[f"wide 1 {_STEPS} {_MORE}"]
    gradient = (more - few) / (_STEPS * (_MORE - _FEW) * size)
    each = ((few - t[f"wide 1 1 {_FEW}"]) / (_STEPS - 1) - step) / size - _FEW * gradient
    rest = (wide - visit) / size - each - _FEW * gradient - t["sum"] / size
    byte = (t["state large"] - t["state small"]) / (4 * (kept - _STATE))
    values = {
        "visit": visit - step,
        "visit_parameter": rest,
        "step": step,
        "step_parameter": each,
        "gradient": gradient,
        "open": t["tiny 1 1"] - visit,
        "close": (t["close"] - t["add"]) / size,
        "gather": t["gather"] / (8 * min(size, _SORTED)),
        "client": t["lists"] / _CLIENTS,
        "file": t["state small"] - 4 * _STATE * byte,
        "byte": byte,
        "disk": disk,
        "process": _process_bytes(),
        **{name: t[name] / size for name in ("touch", "sum", "pack", "merge")},
    }
    name = platform.processor() or platform.machine()
    machine = f"{name}, {os.cpu_count()} processors, torch {torch.__version__}, 1 thread"
    engines = {"ray": DEFAULTS.ray, "flower": DEFAULTS.flower}
    return Constants.model_validate({**_positive(values), **engines, "machine": machine})


def _positive(values: Mapping[str, float]) -> dict[str, float]:
    """Differences of measured seconds, with zero in place of negative ones, which are noise."""
    return {name: max(value, 0.0) for name, value in values.items()}


def _visits(width: int) -> Calls:
    """Visits that differ in one size each: clients, steps, examples of a batch, parameters."""
    calls: Calls = {"tiny 1 1": visit_call(perceptron_job(8, 1, 1), [0])}
    for steps in (1, _STEPS):
        calls[f"tiny {_VISITS} {steps}"] = visit_call(perceptron_job(8, steps, 1), range(_VISITS))
    wide = ((1, 1, _FEW), (_VISITS, 1, _FEW), (1, _STEPS, _FEW), (1, _STEPS, _MORE))
    for clients, steps, batch in wide:
        calls[f"wide {clients} {steps} {batch}"] = visit_call(perceptron_job(width, steps, batch), range(clients))
    return calls


def _vectors(width: int) -> Calls:
    """One pass over a vector, exact sums and the server step."""
    job = perceptron_job(width, 1, _FEW)
    algorithm, model = job.algorithm, job.task.model()
    state = server.open_run(algorithm, bind(model))
    broadcast, layout = server.send(algorithm, state, job.setting), layout_of(model)
    delta = torch.randn(layout.size, generator=torch.Generator().manual_seed(0)) * 2.0**-10
    upload, held = _upload(broadcast, delta), delta.clone()
    total, whole = ExactSum(layout.size), ExactSum(layout.size)
    total.add(delta, 7.0)
    packed, uploads = total.pack(), [delta[:_SORTED]] * 8

    def merge() -> None:
        if not packed.complete(layout.size) or not packed.sound(2.0**40):
            raise RuntimeError("a packed sum is not what was packed")
        whole.merge(packed)

    def add() -> Total:
        total = Total(algorithm, job.local, 0)
        total.add(upload)
        return total

    def close() -> None:
        total = add()
        total.norm()
        server.close(algorithm, state, job.setting, [(broadcast, total)])

    return {
        "touch": lambda: held.add_(delta, alpha=0.5),
        "sum": lambda: total.add(delta, 7.0),
        "pack": total.pack,
        "merge": merge,
        "add": add,
        "close": close,
        "gather": lambda: torch.stack(uploads).sort(dim=0),
    }


def _lists() -> Callable[[], object]:
    """What the server does for the clients of a round besides sums: their records, and their part of a reply."""
    job, clients = perceptron_job(8, 1, 1), range(_CLIENTS)
    broadcast = server.send(job.algorithm, server.open_run(job.algorithm, bind(job.task.model())), job.setting)
    whole = job.gate(broadcast, clients, _CLIENTS).total()
    partial = Partial(whole, [Visit(client, 7, 1.0, 0.1, 7.0, 0.1, 3) for client in clients])
    partial.total.add(_upload(broadcast, torch.zeros_like(broadcast.params)))
    partial.total.clients = list(clients)

    def lists() -> None:
        tensors, summary = partial.flatten()
        gate = job.gate(broadcast, clients, _CLIENTS)
        part = Partial(gate.total()).restore(tensors, summary, len(broadcast.params))
        gate.merge(part.total, gate.total())
        Record(0, tuple(sorted(part.visits, key=lambda visit: visit.client)), ()).row(0.01)

    return lists


def _states(folder: Path, kept: int) -> Calls:
    """Writing and reading the state of a client, a small one and a large one."""
    algorithm = make("scaffold")

    def turn(name: str, size: int) -> Callable[[], object]:
        store = DiskStore(folder / name, algorithm, size)
        state = ClientState(algorithm.first(torch.ones(size)))

        def run() -> None:
            store.save(0, 0, state, None)
            store.load(0, 0)

        return run

    return {name: turn(name, size) for name, size in (("state small", _STATE), ("state large", kept))}


def _disk_speed(folder: Path, size: int, times: int = 4) -> float:
    """Bytes per second of files that are written until they are on disk."""
    begun = time.perf_counter()
    for _ in range(times):
        write(folder / "bytes", bytes(size))
    return times * size / (time.perf_counter() - begun)


def _upload(broadcast: Broadcast, delta: Vector) -> Upload:
    """An upload of client 0."""
    return Upload(
        client=0,
        round=broadcast.round,
        delta=delta,
        examples=7,
        steps=1,
        loss=1.0,
        gradients=1,
        buffers=broadcast.buffers,
        counts=broadcast.counts,
        parts={},
    )


def _process_bytes() -> float:
    """Resident bytes of this process, which has a few small models; the default value if the system has no /proc."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return DEFAULTS.process
    return 1024.0 * int(status.read_text(encoding="utf-8").split("VmRSS:")[1].split()[0])


class _Vector(nn.Module):
    """One parameter of a given length."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))


@dataclass(frozen=True)
class EmptyTask:
    """Clients that take one step along a gradient of zero.

    Args:
        size: the length of the model.
        population: how many clients there are.
    """

    size: int
    population: int

    def model(self) -> nn.Module:
        """A vector."""
        return _Vector(self.size)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Zero, whatever the weights are."""
        return 0.0 * torch.zeros((), requires_grad=True)

    def examples(self, client: int) -> int:
        """One each."""
        return 1

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Tensor]:
        """One empty batch."""
        yield torch.empty(0)


@dataclass(frozen=True)
class Spent:
    """Seconds of a round.

    Args:
        clock: on the clock.
        server: processor time of this process.
        workers: processor time of all workers.
    """

    clock: float
    server: float
    workers: float


def worker_seconds() -> float:
    """Processor seconds so far of all Ray workers below this process; 0 if the system has no /proc."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::"):
                threads = (thread.read_text(encoding="utf-8").split()[0] for thread in folder.glob("task/*/schedstat"))
                seconds[pid] = 1e-9 * sum(map(int, threads))
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    return sum(x for pid, x in seconds.items() if _below(pid, parents))


def _below(pid: int, parents: dict[int, int]) -> bool:
    """Whether a process descends from this one."""
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def time_rounds(simulation: Simulation, rounds: int) -> Spent:
    """The mean seconds of a round, after one that warms up; those on the clock are the least of all rounds.

    Args:
        simulation: what runs them.
        rounds: how many.
    """
    state = simulation.run(1)
    clocks, before, own = [], worker_seconds(), time.process_time()
    for _ in range(rounds):
        begun = time.perf_counter()
        state = simulation.run(1, state)
        clocks.append(time.perf_counter() - begun)
    server = time.process_time() - own
    return Spent(min(clocks), server / rounds, max(worker_seconds() - before, 0.0) / rounds)


def measure_engines(constants: Constants, rounds: int = 5) -> Constants:
    """The constants with what Ray and Flower add; those of an engine that is not installed stay.

    Args:
        constants: of this machine, without engines.
        rounds: how many rounds of each kind are measured.
    """
    with one_thread():
        empty = visit_call(Job(make("fedavg"), EmptyTask(SMALL, 1), Local()), [0])
        visit = least_seconds({"": empty})[""]  # a reply of one client with an empty step, without packing
    for name, measure_engine in (("ray", _ray), ("flower", _flower)):
        tell("measuring %s", name)
        try:
            constants = constants.model_copy(update={name: measure_engine(constants, visit, rounds)})
        except ImportError:
            continue
    return constants


def _rounds(size: int, clients: int, rounds: int, backend: Backend) -> Spent:
    """A round of an empty task on a backend."""
    with Simulation("fedavg", EmptyTask(size, clients), Local(), backend=backend) as simulation:
        return time_rounds(simulation, rounds)


def _ray(constants: Constants, visit: float, rounds: int) -> EngineConstants:
    """Ray: rounds with a few and many chunks, of both models."""
    from undrift.engine.ray_backend.backend import RayBackend
    from undrift.engine.ray_backend.pool import Pool, temporary_ray

    def run(size: int, clients: int) -> Spent:
        return _rounds(size, clients, rounds, RayBackend(pool, chunk=1))

    with temporary_ray(), Pool(_WORKERS) as pool:
        small, many, large, more = (run(size, clients) for size in (SMALL, LARGE) for clients in (_WORKERS, _MANY))
    return ray_constants(constants, visit, small, many, large, more)


def ray_constants(
    constants: Constants, visit: float, small: Spent, many: Spent, large: Spent, more: Spent
) -> EngineConstants:
    """What Ray adds, from rounds of clients with an empty step, in chunks of one client.

    Args:
        constants: of this machine.
        visit: seconds of a visit with the small model.
        small: a round with two chunks of the small model.
        many: the same with many chunks.
        large: a round with two chunks of the large model.
        more: the same with many chunks.
    """
    others = _MANY - _WORKERS
    server, worker = (many.server - small.server) / others, (many.workers - small.workers) / others
    return _engine_constants(
        latency=small.clock - small.server - small.workers / _WORKERS,
        server=server - constants.client,
        worker=worker - visit,
        taken=((more.server - large.server) / others - server) / (LARGE - SMALL) - constants.merge,
    )


def _flower(constants: Constants, visit: float, rounds: int) -> EngineConstants:
    """Flower: a round of one client on each node, of both models; each has a simulation of its own."""
    from undrift.engine.flower.backend import FlowerBackend

    small, large = (_rounds(size, _WORKERS, rounds, FlowerBackend(_WORKERS)) for size in (SMALL, LARGE))
    return flower_constants(constants, visit, small, large)


def flower_constants(constants: Constants, visit: float, small: Spent, large: Spent) -> EngineConstants:
    """What Flower adds, from rounds of one client on each of two nodes.

    Args:
        constants: of this machine.
        visit: seconds of a visit with the small model.
        small: a round of the small model.
        large: a round of the large one.
    """
    c = constants
    served = (large.server - small.server) / (LARGE - SMALL) - c.touch - c.close
    return _engine_constants(
        latency=small.clock - small.server - small.workers / _WORKERS,
        server=small.server / _WORKERS - c.client,
        worker=small.workers / _WORKERS - visit,
        taken=served / _WORKERS - c.merge,
    )


def _engine_constants(**seconds: float) -> EngineConstants:
    return EngineConstants(**_positive(seconds))
