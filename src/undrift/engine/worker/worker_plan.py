"""How many workers share a machine's devices, from one visit's measured memory and time."""

from dataclasses import dataclass
from math import floor

from undrift.engine.worker.device import devices, kind_of, memory
from undrift.engine.worker.job import Job
from undrift.engine.worker.measure import Probe, probe_visit

_SHARE = 0.9  # of the free memory; allocators cannot use all of it
_CONTEXT = {"cuda": 500_000_000, "cpu": 400_000_000}  # bytes of a process itself: driver's context; Python with torch
_WORTH = 0.05  # seconds of training in a round below which a further worker costs more than it saves
_MOST = 8  # workers on one device: beyond, they wait for each other


@dataclass(frozen=True)
class Plan:
    """How many workers there are, and their share of a GPU.

    Args:
        device: the kind of device they train on.
        workers: how many in all.
        gpus: each worker's share of a GPU, for Ray; 0 without GPUs.
        reason: the limit that decided the number, as text.
    """

    device: str
    workers: int
    gpus: float = 0.0
    reason: str = "as given"


def plan_workers(
    probe: Probe,
    free: int | None,
    *,
    devices: int = 1,
    processors: int = 1,
    cohort: int = 10,
    workers: int | None = None,
) -> Plan:
    """Choose the number of workers, or check the number that is given.

    As many workers as the free memory of a device takes, but no more than processors, than clients in a round, than
    eight on a device, and than have 50 ms of training each in a round.

    Args:
        probe: one visit, measured on the device.
        free: bytes that are free on each device; None if unknown, which limits nothing.
        devices: how many devices of the kind there are.
        processors: how many processors the workers may use.
        cohort: clients in a round.
        workers: the number in all, if it is given.
    """
    kind = probe.device.partition(":")[0]
    need = None if probe.bytes is None else probe.bytes + _CONTEXT.get(kind, 0)
    fits = None if need is None or free is None else floor(_SHARE * free / max(need, 1))
    if fits == 0:
        raise ValueError(
            f"device {probe.device}: a worker needs {_gb(need)} GB and {_gb(free)} GB are free: stop other programs "
            "on it, or use a smaller model or local.batch_size"
        )
    if workers is not None:
        each = -(-workers // devices)
        if fits is not None and each > fits:
            raise ValueError(
                f"device {probe.device}: {each} workers on one device need {_gb(each * (need or 0))} GB and "
                f"{_gb(free)} GB are free: set workers to {fits * devices} or fewer, or to auto"
            )
        return Plan(probe.device, workers, _share(kind, each), "as given")
    limits = {
        "clients in a round": cohort,
        "work in a round": max(1, floor(cohort * probe.seconds / _WORTH)),
        "processors": processors,
    }
    if fits is not None:
        limits["memory"] = fits * devices
    if kind != "cpu":
        limits[f"{_MOST} on a device"] = _MOST * devices
    reason, count = min(limits.items(), key=lambda limit: limit[1])
    count = max(count, 1)
    if count > devices:  # equally many on each device
        count -= count % devices
    return Plan(probe.device, count, _share(kind, -(-count // devices)), reason)


def check_shares(where: str, workers: int, gpus: float, there: int) -> None:
    """Raise if workers with a share of a GPU each cannot all be placed.

    Args:
        where: the class or setting that an error names first.
        workers: how many.
        gpus: each worker's share of a GPU; 0 for none.
        there: how many GPUs there are.
    """
    if not 0 <= gpus <= 1:
        raise ValueError(
            f"{where}: gpus must be a worker's share of one GPU, from 0 to 1, got {gpus}: a worker trains on one"
        )
    if gpus == 0:
        return
    if not there:
        raise ValueError(f"{where}: gpus={gpus:g}: Ray has no GPU here; leave gpus out, or check CUDA_VISIBLE_DEVICES")
    each = floor(1 / gpus + 1e-9)
    if workers > each * there:
        raise ValueError(
            f"{where}: {workers} workers with gpus={gpus:g} need {-(-workers // each)} GPUs and Ray has {there}: "
            f"set workers to {each * there} or fewer, or gpus to {_share('cuda', -(-workers // there)):g} or less"
        )


def _share(kind: str, each: int) -> float:
    """A worker's share of a GPU, rounded down to the four digits that Ray counts; Ray knows no other devices."""
    return floor(10_000 / each) / 10_000 if kind == "cuda" else 0.0


def _gb(count: int | None) -> str:
    """Bytes in GB."""
    return f"{(count or 0) / 1e9:.1f}"


def choose_workers(
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
