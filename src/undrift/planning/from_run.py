"""The sizes of a round from a run's settings, with one measured visit."""

from dataclasses import replace
from statistics import fmean
from time import perf_counter, process_time
from typing import Any

from undrift.core.model.flat_model import layout_of
from undrift.engine.worker.device import kind_of, resolve
from undrift.engine.worker.job import Job
from undrift.engine.worker.measure import Probe, probe_visit
from undrift.planning.calibrate import one_thread
from undrift.planning.machine import DEFAULTS, Constants
from undrift.planning.round_cost import CostModel, MethodSize, RoundSize, method_size
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import count_processors
from undrift.runs.setup.prepare import expected_cohort, prepare

_LOOK = 1000  # clients whose examples are counted


def job_size(job: Job, **known: Any) -> tuple[RoundSize, MethodSize]:
    """The sizes of a round of a job, without measuring anything.

    Args:
        job: the method, the task and the settings of local training.
        **known: other fields of `RoundSize`.
    """
    task, local = job.task, job.local
    counted = range(min(task.population, _LOOK))
    layout = layout_of(task.model())
    counts = [count for client in counted if (count := task.examples(client))] or [1]
    steps = fmean(local.step_count(count, 0, 0, job.seed) for count in counts)
    each = fmean(-(-count // local.batch_size) for count in counts)
    size = RoundSize(
        clients=task.population,
        parameters=layout.size,
        examples=fmean(counts),
        epochs=max(steps, 1e-9) / each,
        batch=local.batch_size,
        local_steps=max(steps, 1.0),
        **known,
    )
    return size, method_size(job.algorithm, local, layout=layout)


def measure_step(job: Job, size: RoundSize, method: MethodSize, constants: Constants = DEFAULTS) -> RoundSize:
    """The sizes with the seconds of a step and the memory of a visit, from a visit that is measured here.

    Args:
        job: the method, the task and the settings of local training.
        size: the sizes without them.
        method: what the method costs.
        constants: the machine's.
    """
    with one_thread():
        probe = probe_visit(job, clock=process_time if kind_of(job.device) == "cpu" else perf_counter)
    return with_probe(size, method, probe, job.task.examples(probe.client), constants)


def with_probe(
    size: RoundSize, method: MethodSize, probe: Probe, examples: int, constants: Constants = DEFAULTS
) -> RoundSize:
    """The sizes with the seconds of a step and the memory of a visit that was measured.

    Args:
        size: the sizes without them.
        method: what the method costs.
        probe: the visit.
        examples: of its client.
        constants: the machine's.
    """
    model, c = CostModel(size, replace(method, remembers=False), constants), constants
    fixed = model.fixed_seconds() + c.open
    step = max(probe.taken - fixed, 0.1 * probe.taken) / probe.steps / method.gradients
    empty = min(c.step + size.parameters * c.step_parameter, 0.5 * step)
    batch = min(examples, size.batch)
    return replace(size, step=empty, example=(step - empty) / batch, activations=probe.bytes or 0)


def run_size(config: Config, constants: Constants = DEFAULTS, **changed: Any) -> tuple[RoundSize, MethodSize]:
    """The sizes of a round of a run; one visit is measured.

    Args:
        config: the settings of the run.
        constants: the machine's.
        **changed: fields of `RoundSize` that replace the run's; None leaves one as it is.
    """
    setup = prepare(config)
    config = setup.config
    job = replace(setup.job, device=resolve(config.engine.device))
    workers = count_processors() if config.engine.workers == "auto" else config.engine.workers
    size, method = job_size(
        job,
        cohort=expected_cohort(config, setup.task.population),
        workers=1 if config.engine.name == "local" else workers,
        engine=config.engine.name,
        checkpoint_every=config.output.checkpoint_every,
        keep=config.output.keep,
    )
    method = replace(method, name=config.method)
    size = measure_step(job, size, method, constants)
    given = {name: value for name, value in changed.items() if value is not None}
    if {"examples", "epochs"} & set(given):
        given["local_steps"] = None
    return replace(size, **given), method
