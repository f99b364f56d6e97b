"""Does a private run keep what it states? The same training with canaries among its clients: see `privacy.canaries`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from undrift.blocks.release.shares import PrivateShares
from undrift.core.method.block import Release
from undrift.core.method.view import End
from undrift.core.method.with_hooks import with_hooks
from undrift.core.model.flat_model import Vector
from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.types import Broadcast, ClientState, Upload
from undrift.core.tasks.task import CountsLabels, Task
from undrift.engine.round.backend import InProcess, require_job
from undrift.engine.round.simulation import Simulation
from undrift.engine.worker.job import Job, VersionGroup
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.worker import Worker
from undrift.privacy.canaries import CanaryBound, bound_epsilon, canary_direction, standardise
from undrift.privacy.statement import PRIVATE_SUMS
from undrift.runs.folder.audit import CANARIES
from undrift.runs.folder.files import RunFolder, refuse_deployed
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.open_simulation import make_simulation
from undrift.runs.setup.prepare import prepare
from undrift.secure.settings import Secure

_LONG = 1e6  # the length of a canary's displacement before the release clips it


def audit_run(folder: Path | str, canaries: int = 100, task: Task | None = None) -> CanaryBound:
    """Train a run's settings again with canaries, and note the bound of epsilon in the run's audit log.

    The run's model and files stay as they are. `verify` fails for a run whose last bound is above its epsilon.

    Args:
        folder: the run's folder; it must not be in progress.
        canaries: how many clients are added.
        task: the run's task, if it was made in Python.
    """
    with RunFolder.open(Path(folder)) as run:
        refuse_deployed(run.path, "audit a simulation with the same settings")
        config = run.config
        setup = prepare(config, task=task, folder=Path(folder))
        simulation = make_simulation(setup, secure=config.secure)
        found = audit_simulation(simulation, config.rounds, canaries, config.delta)
        run.audit.write(CANARIES, **found.row())
    return found


def audit_simulation(
    simulation: Simulation,
    rounds: int,
    canaries: int = 100,
    delta: float | None = None,
) -> CanaryBound:
    """A lower bound of the epsilon of a training, from canaries among its clients, beside the epsilon it states.

    It trains in this process, with cohorts that are larger in the same proportion. Canaries are always available and
    drawn with the same probability as others. Where noise is in shares, a sum needs more clients, and each adds less of
    the noise, in that proportion, too. The sums are made without masks, which do not change them.

    Args:
        simulation: the training; it is not changed.
        rounds: how many rounds are trained.
        canaries: how many clients are added.
        delta: as in `Simulation.privacy`.
    """
    algorithm, task = simulation.job.algorithm, simulation.task
    release = algorithm.release
    if not isinstance(release, PRIVATE_SUMS) or release.c == inf:
        raise ConfigError(
            f"audit: {algorithm!r} has no private sum with a finite norm; add private-sum(c, noise) to the method"
        )
    if canaries < 2:
        raise ConfigError(f"audit: half of the canaries choose a threshold, the others count; give 2, got {canaries}")
    stated = simulation.privacy(rounds, delta)
    first = task.population
    layout = simulation.setting.layout
    w = simulation.start().params
    mask = algorithm.personalization.share(torch.ones_like(w), layout)
    if not mask.any():
        raise ConfigError(f"audit: {algorithm!r} shares no parameter of this model, so no canary can be released")
    directions = torch.stack([canary_direction(simulation.seed, number, mask) for number in range(canaries)])

    def scale(count: int) -> int:
        return count * (first + canaries) // first

    secure = simulation.secure if isinstance(release, PrivateShares) else None
    if isinstance(release, PrivateShares) and isinstance(secure, Secure):
        algorithm = replace(algorithm, release=replace(release, least=scale(release.least)))
        secure = replace(secure, least=scale(secure.least))
    given: dict[str, Any] = {one.name: getattr(simulation, one.name) for one in fields(Simulation)} | {
        "algorithm": algorithm,
        "task": (_CountedCanaryTask if isinstance(task, CountsLabels) else _CanaryTask)(task, canaries),
        "local": replace(simulation.local, together=1),
        "cohort": None if simulation.cohort is None else scale(simulation.cohort),
        "backend": _CanaryBackend(first, directions),
        "availability": None,
        "sampling": "uniform",
        "depth": 0,
        "quarantine": None,
        "secure": secure,
    }
    audited = _Audited(**given)
    highest = torch.full((canaries,), -1.0)
    for state, _ in audited.rounds(rounds):
        highest = torch.maximum(highest, _cosines(directions, state.params - w))
        w = state.params
    dimension = int(mask.count_nonzero())
    whole = _cosines(directions, w - audited.start().params)
    chosen = first**-1.1 if delta is None else delta
    bound = bound_epsilon([highest, whole], [rounds, 1], dimension, chosen)
    epsilon = inf if stated is None else stated.epsilon
    return CanaryBound(epsilon, chosen, bound, canaries, dimension, standardise(whole, dimension))


def _cosines(directions: Tensor, release: Vector) -> Tensor:
    """The cosines between unit vectors and what was released."""
    found: Tensor = directions @ release / torch.linalg.vector_norm(release).clamp(min=1e-30)
    return found


class _Audited(Simulation):
    """A simulation whose secure sums are made without masks, with the same result."""

    def _sum_uploads(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Train the clients of a round and sum their uploads; of too few nothing is unmasked."""
        partial = self._backend.collect([VersionGroup(broadcast, clients)], accepted, len(clients))[0]
        if not isinstance(self.secure, Secure) or len(partial.visits) >= self.secure.least:
            return partial
        few = f"a sum of {len(partial.visits)} clients is not unmasked"
        masked = [Rejection(visit.client, Reason.MASKED, few) for visit in partial.visits]
        total = self.job.gate(broadcast, clients, len(clients)).total()
        return Partial(total, rejections=[*partial.rejections, *masked], cause=partial.cause)


class _CanaryTask:
    """A task with more clients at the end, each with the data of another one."""

    def __init__(self, task: Task, canaries: int) -> None:
        self.task, self.population = task, task.population + canaries

    def model(self) -> nn.Module:
        return self.task.model()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.task.loss(model, batch)

    def examples(self, client: int) -> int:
        return self.task.examples(client % self.task.population)

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        return self.task.batches(client % self.task.population, size, generator)


class _CountedCanaryTask(_CanaryTask):
    """The same of a task that knows its clients' labels."""

    def label_counts(self, client: int) -> Tensor | None:
        assert isinstance(self.task, CountsLabels)
        return self.task.label_counts(client % self.task.population)


class _CanaryBackend(InProcess):
    """Trains in this process; the clients from a number on are canaries.

    Args:
        first: the first canary.
        directions: that of each.
    """

    def __init__(self, first: int, directions: Tensor) -> None:
        super().__init__()
        self._canaries = first, directions

    @property
    def worker(self) -> Worker:
        """The only worker, created on first use."""
        if self._worker is None:
            self._worker = _CanaryWorker(require_job("audit", self._job), *self._canaries)
        return self._worker


class _CanaryWorker(Worker):
    """Trains clients, and gives the release of a canary its direction in place of what it trained."""

    def __init__(self, job: Job, first: int, directions: Tensor) -> None:
        super().__init__(job)
        self._first, self._directions = first, directions

    def _train(self, client: int, *arguments: Any, **named: Any) -> tuple[Upload, ClientState]:
        """Train one client with its own random generators."""
        if client < self._first:
            return super()._train(client, *arguments, **named)
        examples, broadcast, state, job, *rest = arguments
        release, direction = job.algorithm.release, _LONG * self._directions[client - self._first]

        def plant(_: Release, delta: Vector, held: Any, end: End) -> Vector:
            planted: Vector = release.release(direction.to(delta), held, end)
            return planted

        method = replace(job.algorithm, release=with_hooks(release, {"release": plant}))
        return super()._train(client, examples, broadcast, state, replace(job, algorithm=method), *rest, **named)
