"""Checks a device: every method trains on it as on the CPU, and what a step and an engine cost there."""

import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import median
from time import perf_counter

import torch

from undrift.algorithms import ALGORITHMS, make
from undrift.core.model.random import generator
from undrift.core.records.place import place_of
from undrift.core.records.types import Local
from undrift.core.server.wire import fingerprint
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.simulation import Simulation
from undrift.engine.worker.device import resolve, title, use_deterministic
from undrift.engine.worker.job import Job
from undrift.engine.worker.measure import Probe, seconds_in_turns, visit_call
from undrift.engine.worker.worker_plan import Plan, choose_workers
from undrift.models import SmallCNN
from undrift.testing.rounds import LOCAL
from undrift.testing.tasks import clinic
from undrift.util.version import __version__

_EXAMPLES, _CLIENTS = 500, 4


def step_ratios(device: str, repetitions: int = 5) -> dict[str, float]:
    """What a client's visit costs on a device: medians of ratios of seconds.

    `visit_over_bare` compares FedAvg's visit with a bare loop of PyTorch on the same device, `fedsam_over_fedavg` and
    `specgrad_over_fedavg` methods, and `device_over_cpu` the device with one thread of the CPU.

    Args:
        device: the device's name.
        repetitions: how many times each is measured, in turn.
    """
    calls: dict[str, Callable[[], object]] = {"bare": _bare(device), "cpu": visit_call(small_job("cpu"), [0])}
    calls |= {name: visit_call(small_job(device, name), [0]) for name in ("fedavg", "fedsam", "specgrad")}
    taken = seconds_in_turns(calls, repetitions, device=device)
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
        from undrift.engine.ray_backend.backend import RayBackend
        from undrift.engine.ray_backend.pool import Pool, temporary_ray
    except ImportError:
        return {}
    taken = list[float]()
    simulate = partial(Simulation, job.algorithm, job.task, job.local, device=job.device)
    with temporary_ray(), Pool(plan.workers, gpus=plan.gpus) as pool:
        for backend in (RayBackend(pool), None):
            with simulate(backend=backend) as simulation:
                state = simulation.run(1)
                begun = perf_counter()
                simulation.run(rounds, state)
                taken.append(perf_counter() - begun)
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


@dataclass(frozen=True)
class MethodCheck:
    """How a method fared on a device.

    Args:
        method: its name.
        difference: the distance of the device's model from the CPU's, over the CPU's distance from the start.
        equal: whether the server's states are equal bit for bit.
        repeats: whether two runs on the device are equal bit for bit.
        seconds: of a run on the device.
        error: why it could not be trained; empty if it was.
    """

    method: str
    difference: float = 0.0
    equal: bool = False
    repeats: bool = False
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class DeviceReport:
    """What `check_device` found.

    Args:
        device: the device's name.
        title: the name of its model.
        tolerance: the largest difference from the CPU that passes.
        deterministic: whether kernels were deterministic.
        float64: "device" if exact sums are made there, else "host".
        methods: a check of every method.
        ratios: what a step and an engine cost: see docs/guide/accelerators.md.
        plan: the workers that a measured visit of the ratios' model allows here.
        probe: that visit.
        environment: versions and machine.
    """

    device: str
    title: str
    tolerance: float
    deterministic: bool
    float64: str
    methods: tuple[MethodCheck, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    plan: Plan | None = None
    probe: Probe | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        """Why methods did not pass, by name."""
        found = {}
        for check in self.methods:
            if check.error:
                found[check.method] = check.error
            elif not check.difference <= self.tolerance:
                found[check.method] = f"differs from the CPU by {check.difference:.1e}, more than {self.tolerance:.0e}"
            elif self.deterministic and not check.repeats:
                found[check.method] = "two runs with deterministic kernels are not equal"
        return found

    def json(self) -> str:
        """The report as JSON."""
        return json.dumps({**asdict(self), "failures": self.failures}, indent=2)

    def markdown(self) -> str:
        """The report as Markdown, to attach to an issue."""
        failures, tried = self.failures, len(self.methods)
        lines = [
            f"# Undrift on {self.device} ({self.title})",
            "",
            f"{tried - len(failures)} of {tried} methods pass: within {self.tolerance:.0e} of the CPU"
            + (", and equal in two runs." if self.deterministic else "."),
            f"{sum(c.equal for c in self.methods)} have the CPU's bits, {sum(c.repeats for c in self.methods)} have "
            f"equal bits in two runs, {'with' if self.deterministic else 'without'} deterministic kernels. "
            f"Exact sums are made on the {self.float64}.",
            "",
            *(f"- {name}: {value}" for name, value in self.environment.items()),
        ]
        if self.ratios:
            lines += ["", "| ratio | value |", "|---|---:|", *(f"| {k} | {x:.2f} |" for k, x in self.ratios.items())]
        if self.plan is not None and self.probe is not None:
            size = "unknown" if self.probe.bytes is None else f"{self.probe.bytes / 1e6:.0f} MB"
            lines += [
                "",
                f"A visit of the ratios' model: {self.probe.seconds:.3f} s, memory {size}. Workers: "
                f"{self.plan.workers}, gpus {self.plan.gpus:g} each (limit: {self.plan.reason}).",
            ]
        lines += [
            "",
            "| method | difference | CPU's bits | two runs equal | seconds | |",
            "|---|---:|---|---|---:|---|",
        ]
        for c in self.methods:
            cells = [c.method, f"{c.difference:.1e}", _yes(c.equal), _yes(c.repeats), f"{c.seconds:.2f}"]
            lines.append(f"| {' | '.join(cells)} | {failures.get(c.method, '')} |")
        return "\n".join(lines) + "\n"


def check_device(
    device: str = "auto",
    methods: Sequence[str] | None = None,
    *,
    rounds: int = 2,
    tolerance: float = 1e-2,
    deterministic: bool = False,
    measure: bool = True,
    engines: bool = True,
    watch: Callable[[MethodCheck], None] | None = None,
) -> DeviceReport:
    """Train methods for some rounds on a device and on the CPU, compare them, and measure what the device costs.

    Args:
        device: the device's name; see `resolve`.
        methods: names or compositions; None takes all of `undrift list`.
        rounds: how many.
        tolerance: the largest difference from the CPU, as a share of the way that training went.
        deterministic: choose deterministic kernels, and demand that two runs are equal bit for bit.
        measure: measure ratios and a visit.
        engines: also measure Ray, if it is installed; needs `measure`.
        watch: called with every check.
    """
    device, checks = resolve(device), []
    with _kernels(deterministic):
        for name in ALGORITHMS if methods is None else methods:
            checks.append(_check(name, device, rounds))
            if watch is not None:
                watch(checks[-1])
        ratios, plan, probe = dict[str, float](), None, None
        if measure:
            job = small_job(device)
            plan, probe = choose_workers(job, job.task.population, torch.multiprocessing.cpu_count())
            ratios = step_ratios(device) | (engine_ratios(job, plan) if engines else {})
    float64 = "device" if place_of(device).exact else "host"
    found = tuple(checks)
    return DeviceReport(
        device, title(device), tolerance, deterministic, float64, found, ratios, plan, probe, _environment()
    )


def _check(name: str, device: str, rounds: int) -> MethodCheck:
    """One method on a device and on the CPU."""
    try:
        algorithm = make(name)
        task = clinic(algorithm).without_noise()  # the streams of random numbers differ between devices
        simulate = partial(Simulation, algorithm, task, LOCAL, cohort=5, seed=7, failures="raise")
        reference = simulate()
        start, expected = reference.start(), reference.run(rounds)
        begun = perf_counter()
        state = simulate(device=device).run(rounds)
        seconds = perf_counter() - begun
        again = simulate(device=device).run(rounds)
    except Exception as error:
        return MethodCheck(name, error=f"{type(error).__name__}: {error}".splitlines()[0][:300])
    way = float((expected.params - start.params).double().norm())
    apart = float((state.params - expected.params).double().norm())
    return MethodCheck(
        name,
        apart / way if way else apart,
        fingerprint(state) == fingerprint(expected),
        fingerprint(state) == fingerprint(again),
        seconds,
    )


@contextmanager
def _kernels(deterministic: bool) -> Iterator[None]:
    """Deterministic kernels inside, as before outside."""
    before = torch.are_deterministic_algorithms_enabled()
    if deterministic and not before:
        use_deterministic()
    try:
        yield
    finally:
        if deterministic and not before:
            use_deterministic(False)


def _environment() -> dict[str, str]:
    """Versions and machine."""
    return {
        "undrift": __version__,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda or torch.version.hip or "none"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _yes(true: bool) -> str:
    return "yes" if true else "no"
