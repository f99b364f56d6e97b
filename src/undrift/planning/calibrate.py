"""Measures what the parts of a round cost on this machine: `undrift doctor --measure`.

All figures are processor time of one thread, the smallest of some repetitions, so that other programs disturb little.
"""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import torch

from undrift.algorithms import make
from undrift.core.model.flat_model import Vector, bind, layout_of
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.types import Broadcast, ClientState, Local, Upload
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.server.total import Total
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.record import Record
from undrift.engine.stores.store import DiskStore
from undrift.engine.worker.job import Job
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.engine.worker.worker import Worker
from undrift.models import MLP
from undrift.planning.machine import DEFAULTS, Constants
from undrift.util.steps import tell
from undrift.util.storage.files import write

WIDTH = 900
"""Units of a hidden layer of the perceptron on which figures per parameter are measured."""

_FEW, _MORE = 4, 36  # examples of a batch
_STEPS = 9  # local steps of the longer visit
_VISITS = 5  # clients of the longer call
_CLIENTS = 200  # of the round whose lists are timed
_SMALL = 100  # numbers in the smaller state of a client
_SORTED = 1 << 16  # coordinates that are sorted to time a rule that gathers


def least(runs: Mapping[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """The least processor seconds of each call; all take turns, so that a busy moment meets all alike.

    Args:
        runs: what is timed, by name.
        repeats: how often, after a first call that warms up.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            begun = process_time()
            run()
            taken[name] += [process_time() - begun] * (turn > 0)
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


def perceptron(width: int, steps: int, batch: int) -> Job:
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


def serving(job: Job, clients: int) -> Callable[[], object]:
    """A call that trains some clients and sums their uploads.

    Args:
        job: the method and the task.
        clients: how many, from number 0 on.
    """
    broadcast, worker = server.send(job.algorithm, server.open_run(job.algorithm, bind(job.task.model()))), Worker(job)
    return lambda: worker.serve(broadcast, list(range(clients)), {}, clients)


def measure(repeats: int = 10, width: int = WIDTH) -> Constants:
    """The constants of this machine; the defaults stand for those of engines: see `measure_engines`.

    Args:
        repeats: how often each part is timed.
        width: units of a hidden layer of the larger perceptron.
    """
    with one_thread(), torch.random.fork_rng(devices=[]), TemporaryDirectory(prefix="undrift-") as folder:
        tell("measuring this machine")
        size = layout_of(perceptron(width, 1, 1).task.model()).size
        kept = min(size, 1_000_000)
        runs = {**_visits(width), **_vectors(width), "lists": _lists(), **_states(Path(folder), kept)}
        taken = least(runs, repeats)
        return constants_of(taken, size, kept, _written(Path(folder), 4 * kept))


def constants_of(taken: Mapping[str, float], size: int, kept: int, disk: float) -> Constants:
    """The constants that follow from seconds that differ in one size each.

    Args:
        taken: seconds by name: small and large models, clients, steps and examples; see the code.
        size: parameters of the larger perceptron.
        kept: numbers in the larger state of a client.
        disk: bytes per second that reach the disk.
    """
    t, others = taken, _VISITS - 1
    tiny, long = (t[f"tiny {_VISITS} {steps}"] / _VISITS for steps in (1, _STEPS))
    step = (long - tiny) / (_STEPS - 1)
    visit = (t[f"tiny {_VISITS} 1"] - t["tiny 1 1"]) / others
    wide = (t[f"wide {_VISITS} 1 {_FEW}"] - t[f"wide 1 1 {_FEW}"]) / others
    few, more = t[f"wide 1 {_STEPS} {_FEW}"], t[f"wide 1 {_STEPS} {_MORE}"]
    gradient = (more - few) / (_STEPS * (_MORE - _FEW) * size)
    each = ((few - t[f"wide 1 1 {_FEW}"]) / (_STEPS - 1) - step) / size - _FEW * gradient
    rest = (wide - visit) / size - each - _FEW * gradient - t["sum"] / size
    byte = (t["state large"] - t["state small"]) / (4 * (kept - _SMALL))
    values = {
        "visit": visit - step,
        "visit_parameter": rest,
        "step": step,
        "step_parameter": each,
        "gradient": gradient,
        "open": t["tiny 1 1"] - visit,
        "open_parameter": (t[f"wide 1 1 {_FEW}"] - wide) / size,
        "close": (t["close"] - t["opened"]) / size,
        "gather": t["gather"] / (8 * min(size, _SORTED)),
        "client": t["lists"] / _CLIENTS,
        "file": t["state small"] - 4 * _SMALL * byte,
        "byte": byte,
        "disk": disk,
        "process": _process(),
        **{name: t[name] / size for name in ("touch", "sum", "pack", "merge")},
    }
    # of noise, where a part is very small, a difference may come out below zero
    found: dict[str, Any] = {name: max(value, 0.0) for name, value in values.items()}
    return Constants(**found, ray=DEFAULTS.ray, flower=DEFAULTS.flower, machine=machine())


def machine() -> str:
    """This machine, in a line: processor, torch and threads."""
    name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} processors, torch {torch.__version__}, 1 thread"


def _visits(width: int) -> dict[str, Callable[[], object]]:
    """Visits that differ in one size each: clients, steps, examples of a batch, parameters."""
    runs = {"tiny 1 1": serving(perceptron(8, 1, 1), 1)}
    runs |= {f"tiny {_VISITS} {steps}": serving(perceptron(8, steps, 1), _VISITS) for steps in (1, _STEPS)}
    wide = ((1, 1, _FEW), (_VISITS, 1, _FEW), (1, _STEPS, _FEW), (1, _STEPS, _MORE))
    return runs | {f"wide {n} {steps} {batch}": serving(perceptron(width, steps, batch), n) for n, steps, batch in wide}


def _vectors(width: int) -> dict[str, Callable[[], object]]:
    """One pass over a vector, exact sums and the server step."""
    job = perceptron(width, 1, _FEW)
    algorithm, model = job.algorithm, job.task.model()
    state = server.open_run(algorithm, bind(model))
    broadcast, layout = server.send(algorithm, state), layout_of(model)
    delta = torch.randn(layout.size, generator=torch.Generator().manual_seed(0)) * 2.0**-10
    upload, held = _upload(broadcast, delta), delta.clone()
    total, whole = ExactSum(layout.size), ExactSum(layout.size)
    total.add(delta, 7.0)
    packed, uploads = total.pack(), [delta[:_SORTED]] * 8

    def merge() -> None:
        if not packed.complete(layout.size) or not packed.sound(2.0**40):
            raise RuntimeError("a packed sum is not what was packed")
        whole.merge(packed)

    def opened() -> Total:
        total = Total(algorithm, job.local, 0.01)
        total.add(upload)
        return total

    def close() -> None:
        total = opened()
        total.norm()
        server.close(algorithm, state, broadcast, total, 1, job.local, layout)

    return {
        "touch": lambda: held.add_(delta, alpha=0.5),
        "sum": lambda: total.add(delta, 7.0),
        "pack": total.pack,
        "merge": merge,
        "opened": opened,
        "close": close,
        "gather": lambda: torch.stack(uploads).sort(dim=0),
    }


def _lists() -> Callable[[], object]:
    """What the server does for the clients of a round besides sums: their records, and their part of a reply."""
    job, clients = perceptron(8, 1, 1), range(_CLIENTS)
    broadcast = server.send(job.algorithm, server.open_run(job.algorithm, bind(job.task.model())))
    gate = Gate(job.algorithm, job.local, broadcast, clients, None)
    partial = Partial(gate.total(), [Visit(client, 7, 1.0, 0.1, 7.0, 0.1, 3) for client in clients])
    partial.total.add(_upload(broadcast, torch.zeros_like(broadcast.params)))
    partial.total.clients = list(clients)

    def lists() -> None:
        tensors, summary = partial.flatten()
        asked = Gate(job.algorithm, job.local, broadcast, clients, None)
        part = Partial(asked.total()).restore(tensors, summary, len(broadcast.params))
        asked.merge(part.total, asked.total())
        Record(0, tuple(sorted(part.visits, key=lambda visit: visit.client)), ()).row(0.01)

    return lists


def _states(folder: Path, kept: int) -> dict[str, Callable[[], object]]:
    """Writing and reading the state of a client, a small one and a large one."""
    algorithm = make("scaffold")

    def turn(name: str, size: int) -> Callable[[], object]:
        store = DiskStore(folder / name, algorithm, size)
        state = ClientState(algorithm.first(torch.ones(size)))

        def run() -> None:
            store.save(0, 0, state, None)
            store.load(0, 0)

        return run

    return {name: turn(name, size) for name, size in (("state small", _SMALL), ("state large", kept))}


def _written(folder: Path, size: int, times: int = 4) -> float:
    """Bytes per second of files that are written until they are on disk."""
    begun = perf_counter()
    for _ in range(times):
        write(folder / "bytes", bytes(size))
    return times * size / (perf_counter() - begun)


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


def _process() -> float:
    """Bytes of this process, which has a few small models; that of the defaults where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return DEFAULTS.process
    return 1024.0 * int(status.read_text(encoding="utf-8").split("VmRSS:")[1].split()[0])
