"""Measures on this machine: the seconds of calls that take turns, and the time and memory of a client's visit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from undrift.core.client.visit import ClientError
from undrift.core.model.flat_model import bind
from undrift.core.server.step import open_run, send
from undrift.engine.worker.device import peak_memory, synchronize
from undrift.engine.worker.job import Job
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.worker import Worker
from undrift.util.steps import tell

_SEARCHED = 1000  # clients among which the one with the most examples is found
_STEPS = 8  # local steps that are measured at most


@dataclass(frozen=True)
class Probe:
    """One visit, measured.

    Args:
        device: the device of the visit.
        client: the client, the one with the most examples.
        steps: how many local steps were taken.
        seconds: how long the whole visit would take, from the seconds of these steps.
        bytes: the most memory that model, data and training took; None if the device does not report it.
        taken: how long these steps took, with all else that belongs to a visit.
    """

    device: str
    client: int
    steps: int
    seconds: float
    bytes: int | None
    taken: float = 0.0


def visit_call(job: Job, clients: Sequence[int]) -> Callable[[], Partial]:
    """A call that trains some clients from the first model and sums their uploads.

    Args:
        job: the method, the task and the device.
        clients: the clients.
    """
    worker = Worker(job)
    broadcast = send(job.algorithm, open_run(job.algorithm, bind(job.task.model())), job.setting)
    return lambda: worker.serve(broadcast, clients, {}, len(clients))


def seconds_in_turns(
    calls: Mapping[str, Callable[[], object]],
    repeats: int = 5,
    *,
    clock: Callable[[], float] = perf_counter,
    device: str = "cpu",
) -> dict[str, list[float]]:
    """The seconds of calls by name; they take turns, so that a busy moment disturbs all, and a first turn warms up.

    Args:
        calls: what is timed.
        repeats: how often, after the first turn.
        clock: gives the seconds; that of the processor's time is not disturbed by other programs.
        device: what is waited for before and after a call.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            synchronize(device)
            begun = clock()
            call()
            synchronize(device)
            taken[name] += [clock() - begun] * (turn > 0)
    return taken


def probe_visit(job: Job, steps: int = _STEPS, clock: Callable[[], float] = perf_counter) -> Probe:
    """Train the client with the most examples for a few steps on the job's device; measure its memory and time.

    The first visit warms up, the second is measured; neither is kept.

    Args:
        job: the method, the task and the device.
        steps: how many local steps to take at most.
        clock: gives the seconds: see `seconds_in_turns`.
    """
    task, local = job.task, job.local
    client = max(range(min(task.population, _SEARCHED)), key=task.examples)
    whole = max(local.step_count(task.examples(client), client, 0, job.seed), 1)
    taken = min(whole, steps)
    short = replace(job, local=replace(local, steps=taken, deadline=None, speed=None), depth=0)
    tell("measuring a visit on %s", job.device)
    with torch.random.fork_rng(devices=[]), peak_memory(job.device) as peak:
        seconds = _visit_seconds(short, client, clock)
    return Probe(job.device, client, taken, seconds * whole / taken, peak.bytes, seconds)


def _visit_seconds(job: Job, client: int, clock: Callable[[], float]) -> float:
    """The seconds of a client's second visit; its worker is gone at the end."""
    found, visit = list[Partial](), visit_call(job, [client])
    (seconds,) = seconds_in_turns({"": lambda: found.append(visit())}, 1, clock=clock, device=job.device)[""]
    if not found[-1].visits:
        raise ClientError(
            f"device {job.device}: the training of a client could not be measured: {found[-1].rejections[0]}"
        )
    return seconds
