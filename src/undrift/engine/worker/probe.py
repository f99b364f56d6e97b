"""Measures one visit on a device, to choose how many workers share it."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import torch

from undrift.core.client.visit import ClientError
from undrift.core.model.flat_model import bind
from undrift.core.server.step import open_run, send
from undrift.engine.worker.device import devices, kind_of, memory, peak_memory, synchronize
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker import Worker
from undrift.engine.worker.worker_plan import Plan, Probe, plan_workers
from undrift.util.steps import tell

_LOOK = 1000  # clients among which the largest is sought
_STEPS = 8  # local steps that are measured at most


def probe_visit(job: Job, steps: int = _STEPS, clock: Callable[[], float] = perf_counter) -> Probe:
    """Train the client with the most examples for a few steps on the job's device; measure its memory and time.

    The first visit warms up, the second is measured; both are forgotten.

    Args:
        job: the method, the task and the device.
        steps: how many local steps to take at most.
        clock: gives the seconds; that of the processor's time is not disturbed by other programs.
    """
    task, local = job.task, job.local
    client = max(range(min(task.population, _LOOK)), key=task.examples)
    whole = max(local.step_count(task.examples(client), client, 0, job.seed), 1)
    taken = min(whole, steps)
    short = replace(job, local=replace(local, steps=taken, deadline=None, speed=None), depth=0)
    tell("measuring a visit on %s", job.device)
    with torch.random.fork_rng(devices=[]), peak_memory(job.device) as peak:
        worker = Worker(short)
        broadcast = send(job.algorithm, open_run(job.algorithm, bind(task.model())))
        for _ in range(2):
            synchronize(job.device)
            begun = clock()
            partial = worker.serve(broadcast, [client], {}, 1)
            synchronize(job.device)
            seconds = clock() - begun
        if not partial.visits:
            raise ClientError(
                f"device {job.device}: the training of a client could not be measured: {partial.rejections[0]}"
            )
        del worker
    return Probe(job.device, client, taken, seconds * whole / taken, peak.bytes, seconds)


def choose(
    job: Job, cohort: int, processors: int, *, workers: int | None = None, gpus: int | None = None
) -> tuple[Plan, Probe]:
    """The number of workers for a job, from one visit that is measured here.

    Args:
        job: the method, the task and the device.
        cohort: clients in a round.
        processors: how many processors the workers may use.
        workers: the number in all, if it is given; it is checked.
        gpus: how many GPUs there are, if the job is on GPUs; None counts those of this machine.
    """
    there = memory(job.device)
    probe = probe_visit(job)
    kind = kind_of(job.device)
    count = 1 if kind != "cuda" else gpus if gpus is not None else sum(kind_of(x.name) == kind for x in devices())
    free = None if there is None else there.free
    if free is not None and probe.bytes is not None and kind != "cpu" and free > 3 * probe.bytes:
        free -= probe.bytes  # this process evaluates models on the same device
    return plan_workers(
        probe, free, devices=max(count, 1), processors=processors, cohort=cohort, workers=workers
    ), probe
