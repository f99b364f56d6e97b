"""What a client's visit and an engine cost on a device, as ratios of seconds."""

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import torch

from undrift.algorithms import make
from undrift.core.place import place_of
from undrift.core.random import generator
from undrift.core.server import open_run, send
from undrift.core.tensor_task import TensorTask
from undrift.core.types import Local
from undrift.core.vector import bind
from undrift.engine.device import synchronize
from undrift.engine.job import Job
from undrift.engine.plan import Plan
from undrift.engine.simulation import Simulation
from undrift.engine.worker import Worker
from undrift.models import SmallCNN

_EXAMPLES, _CLIENTS = 500, 4


def step_ratios(device: str, repetitions: int = 5) -> dict[str, float]:
    """What a client's visit costs on a device: medians of ratios of seconds.

    `visit_over_bare` compares FedAvg's visit with a bare loop of PyTorch on the same device, `fedsam_over_fedavg` and
    `specgrad_over_fedavg` methods, and `device_over_cpu` the device with one thread of the CPU.

    Args:
        device: the device's name.
        repetitions: how many times each is measured, in turn.
    """
    runs = {name: _visit(small_job(device, name)) for name in ("fedavg", "fedsam", "specgrad")}
    runs |= {"bare": _bare(device), "cpu": _visit(small_job("cpu"))}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repetitions + 1):
        for name, run in runs.items():
            seconds = _seconds(run, "cpu" if name == "cpu" else device)
            taken[name] += [seconds] * (turn > 0)  # the first one warms up
    pairs = {
        "visit_over_bare": ("fedavg", "bare"),
        "fedsam_over_fedavg": ("fedsam", "fedavg"),
        "specgrad_over_fedavg": ("specgrad", "fedavg"),
        "device_over_cpu": ("fedavg", "cpu"),
    }
    return {
        name: median(a / b for a, b in zip(taken[one], taken[other], strict=True))
        for name, (one, other) in pairs.items()
    }


def engine_ratios(job: Job, plan: Plan, rounds: int = 3) -> dict[str, float]:
    """The seconds of a round on Ray's workers over those in one process; empty without Ray.

    Args:
        job: what is trained.
        plan: the workers.
        rounds: how many rounds are measured after the first.
    """
    try:
        from undrift.engine.pool import Pool, temporary_ray
        from undrift.engine.ray import RayBackend
    except ImportError:
        return {}
    taken = list[float]()
    simulate = partial(Simulation, job.algorithm, job.task, job.local, device=job.device)
    with temporary_ray(), Pool(plan.workers, gpus=plan.gpus) as pool:
        for backend in (RayBackend(pool), None):
            with simulate(backend=backend) as simulation:
                state = simulation.run(1)
                taken.append(_seconds(partial(simulation.run, rounds, state), job.device))
    return {"ray_over_local": taken[0] / taken[1]}


def small_job(device: str, method: str = "fedavg") -> Job:
    """A small convolutional network on random images, for four clients.

    Args:
        device: the device's name.
        method: the name of a method.
    """
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(_EXAMPLES * _CLIENTS, 1, 28, 28, generator=draw)
    targets = torch.randint(10, (len(inputs),), generator=draw)
    task = TensorTask(SmallCNN, inputs, targets, torch.split(torch.arange(len(inputs)), _EXAMPLES))
    return Job(make(method), task, Local(lr=0.01), device=device)


def _visit(job: Job) -> Callable[[], object]:
    """A client's visit, from the broadcast to the sum."""
    broadcast = send(job.algorithm, open_run(job.algorithm, bind(job.task.model())))
    return partial(Worker(job).serve, broadcast, [0], {}, 1)


def _bare(device: str) -> Callable[[], None]:
    """The same epoch of SGD, as one would write it without a library."""
    job, place = small_job(device), place_of(device)
    model = place.to(job.task.model().train())
    batches = place.to(list(job.task.batches(0, job.local.batch_size, generator(0, 0, 0, "batches"))))

    def epoch() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=job.local.lr)
        for batch in batches:
            optimizer.zero_grad()
            torch.autograd.backward(job.task.loss(model, batch))
            optimizer.step()

    return epoch


def _seconds(run: Callable[[], object], device: str) -> float:
    """How long something takes on a device."""
    synchronize(device)
    begun = perf_counter()
    run()
    synchronize(device)
    return perf_counter() - begun
