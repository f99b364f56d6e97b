"""One run, from its start or its last checkpoint to its end."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from safetensors.torch import save

from undrift.core.task import Task
from undrift.core.types import ServerState
from undrift.core.wire import fingerprint
from undrift.data.partition import parse
from undrift.engine.record import Record
from undrift.experiment.best import BEST, KeepBest
from undrift.experiment.checkpoint import Checkpoints
from undrift.experiment.config import Config
from undrift.experiment.devices import other_device, settled, warn_other
from undrift.experiment.folder import RunError, RunFolder, check_free, read_summary
from undrift.experiment.initial import describe_init
from undrift.experiment.judge import best as best_of
from undrift.experiment.judge import rounds_to
from undrift.experiment.measure import Measure
from undrift.experiment.recorded import check_references, keep, used
from undrift.experiment.saved import Outcome
from undrift.experiment.setup import CLIENTS, Setup, cohort_size, engine, environment, prepare
from undrift.experiment.strict import ConfigError
from undrift.experiment.tasks import named_config, same_task, task_record
from undrift.experiment.tracking import trackers
from undrift.observe.live import Live
from undrift.util.files import write
from undrift.util.version import __version__

Watch = Callable[[dict[str, Any]], None]


class StalledError(RunError):
    """No upload was accepted for many rounds, so the model did not change."""


def start(
    config: Config | None = None,
    folder: Path | str | None = None,
    watch: Watch | None = None,
    setup: Setup | None = None,
    *,
    task: Task | str | None = None,
    resume: bool = False,
    **settings: Any,
) -> Outcome:
    """Run a config, or the settings that are given by name, in a new folder.

    Args:
        config: the settings; None takes those given by name.
        folder: where to store everything; it must be new or empty, unless `resume` is true.
        watch: called with every row.
        setup: the result of `prepare(config)`, if you have it already.
        task: a task of one's own: the object, or a reference to it or to a function that returns it.
        resume: go on with a run of the same settings and task that is in the folder, or return its result if it has
            ended; so a script that was killed is simply run again.
        settings: keys of a run file, such as `method`, `rounds`, `cohort`, `seed` or `output`; `local` may also be a
            `Local`, and `engine` a name.

    Example:
        start(task=task, folder="runs/mine", method="scaffold", rounds=10, local=Local(lr=0.1), resume=True)
    """
    if folder is None:
        raise ConfigError('start: name a folder for the run, folder="runs/mine"')
    if config is not None and (settings or task is not None):
        raise ConfigError(f"start: give a config or settings, not both, got {', '.join(settings) or 'task'} besides")
    made = None if isinstance(task, str) else task
    config = named_config(task, settings) if config is None else config
    path = Path(folder)
    if resume and (path / "config.toml").is_file():
        if made is not None and finished(config, path):
            same_task(path, task_record(made, config.subject))
        return _again(config, path, partial(prepare, config, task=made), watch)
    check_free(path)
    _settled(config)  # raises here if the device is missing, before data are loaded
    setup = prepare(config, task=made) if setup is None else setup
    with RunFolder.create(path, setup.config) as run:
        run.audit.write("start", config=setup.config.identity())
        return _go(run, setup, watch)


def resume(folder: Path | str, watch: Watch | None = None, task: Task | None = None, **changes: Any) -> Outcome:
    """Resume a run from its last intact checkpoint; the result equals that of an uninterrupted run bit for bit.

    Args:
        folder: the run's folder.
        watch: called with every row.
        task: the run's task, if it was made in Python.
        changes: settings to change: `rounds`, and those of `engine`, which do not affect results; another kind of
            device changes their bits, and a warning says so.
    """
    folder = Path(folder)
    with RunFolder.open(folder) as run:
        check_references(folder)
        values = run.config.model_dump()
        rounds = changes.pop("rounds", None) or values["rounds"]
        values |= {"rounds": rounds, "engine": {**values["engine"], **changes}}
        config = Config.build(values)
        done = run.summary()
        if done is not None and done["rounds"] >= rounds:
            return Outcome(folder, done, trained=False)
        why = other_device(run.config.engine, _settled(config).engine)
        if why is not None:
            warn_other(folder, why)
            run.audit.write("device", before=run.config.engine.device, now=config.engine.device, detail=why)
        return _go(run, prepare(config, task=task), watch)


def _again(config: Config, folder: Path, ready: Callable[[], Setup], watch: Watch | None) -> Outcome:
    """Go on with a run that is in a folder, or return its result."""
    ended = finished(config, folder)
    if not ended:
        complete(config, folder, ready, watch)
    return Outcome(folder, read_summary(folder) or {}, trained=not ended)


def finished(config: Config, folder: Path) -> bool:
    """Whether a folder contains this run with all its rounds; raises for another run. Loads no data."""
    if not (folder / "config.toml").is_file():
        return False
    check_references(folder)
    there = Config.read(folder / "config.toml")
    left = {name: getattr(there, name) for name in ("clients", "model") if getattr(config, name) is None}
    left |= {"goal": there.goal} if config.goal is None else {}
    if isinstance(config.cohort, float):
        left["cohort"] = cohort_size(config.cohort, there.clients or CLIENTS)
    elif config.cohort is None and config.probability is None:
        left["cohort"] = there.cohort
    given = Config.build(config.model_dump() | left | {"partition": str(parse(config.partition))})
    if given.identity() != there.identity():
        raise RunError(
            f"{folder} holds a run with other settings ({', '.join(_changes(there, given))}); "
            "name another folder with --out, or move this one away to run it again"
        )
    done = read_summary(folder)
    return done is not None and bool(done["rounds"] >= config.rounds)


def complete(config: Config, folder: Path, ready: Callable[[], Setup], watch: Watch | None = None) -> None:
    """Bring a run to its last round: start it, resume it, or do nothing if it is finished.

    Args:
        config: the settings.
        folder: the run's folder, new or not.
        ready: returns what `prepare(config)` would; called only if there is something to run.
        watch: called with every row.
    """
    if finished(config, folder):
        return
    setup = ready()
    if not (folder / "config.toml").is_file():
        start(config, folder, watch, setup)
        return
    with RunFolder.open(folder) as run:
        why = other_device(run.config.engine, _settled(config).engine)
        if why is not None:
            raise RunError(
                f"{folder}: {why}, so that its bits would not be those of an uninterrupted run; leave the device as it "
                f"was, or accept it with: undrift resume {folder} --device {config.engine.device}"
            )
        _go(run, setup, watch)


def _settled(config: Config) -> Config:
    """The settings with a device that exists."""
    return config.model_copy(update={"engine": settled(config.engine)})


def _changes(there: Config, given: Config) -> list[str]:
    """The settings in which two runs differ, with both values."""
    differences = []
    for key, value in given.model_dump(exclude={"engine", "output", "rounds", "target", "local"}).items():
        differences += [f"{key}: {getattr(there, key)!r} there, {value!r} given"] * (getattr(there, key) != value)
    for key, value in given.local:
        before = getattr(there.local, key)
        differences += [f"local.{key}: {before!r} there, {value!r} given"] * (before != value)
    return differences


def _go(run: RunFolder, setup: Setup, watch: Watch | None) -> Outcome:
    """Train until the last round."""
    config = _settled(setup.config)
    setup = replace(setup, config=config)
    torch.set_num_threads(1)
    if setup.partition is None:
        same_task(run.path, task_record(setup.task, config.subject))
    else:
        run.describe(setup.partition)
    keep(run.path, used(config, getattr(setup.task, "dataset", None)))
    run.begin_from(describe_init(getattr(setup.task, "make", None), config.init))
    write(run.path / "config.toml", config.toml())
    run.note("environment.json", {"undrift": __version__, **environment(), "data": setup.title})
    with engine(setup, run.path / "clients", partial(run.note, "engine.json")) as simulation:
        first = simulation.start()
        checkpoints = partial(
            Checkpoints, algorithm=setup.algorithm, size=len(first.params), identity=config.identity()
        )
        kept = checkpoints(run.path / "checkpoints", keep=config.output.keep)
        latest = kept.latest(lambda error: run.audit.write("refused", checkpoint=str(error)))
        state = first if latest is None else latest
        run.audit.write("resume" if latest else "begin", round=state.round, sha256=fingerprint(state))
        measure = Measure(setup, simulation)
        output = config.output
        lens = run.path / "lens.jsonl"
        live = Live(
            simulation.job,
            lens,
            output.lens_every,
            output.lens_clients,
            output.lens,
            measure.model,
            output.lens_filter,
        )
        live.rewind(state.round)  # before the metrics, which tell how an earlier version counted rounds
        run.metrics.rewind(state.round)
        best: KeepBest | None = None
        if output.keep_best:
            best = KeepBest(
                checkpoints(run.path / BEST, keep=1), run.path / "clients", measure.judged_by, run.metrics.rows()
            )
        with trackers(config.output.track, run.path, config) as track:
            begun, idle = perf_counter(), 0
            for state, record in simulation.rounds(config.rounds - state.round, state):  # noqa: B020
                row = measure.row(state, record, perf_counter() - begun) | live.after(state, record)
                if best is not None and best.after(state, row):
                    run.audit.write("best", round=state.round, sha256=fingerprint(state))
                _commit(run, kept, config, state, record, row)
                track(row)
                if watch is not None:
                    watch(row)
                idle = 0 if record.visits else idle + 1
                if idle == output.patience:
                    raise _stalled(run.path, record, idle)
                begun = perf_counter()
        return _finish(run, setup, measure, state)


def _stalled(folder: Path, record: Record, idle: int) -> StalledError:
    """The error of a run without progress."""
    reasons = sorted({rejection.reason.name.lower() for rejection in record.rejections}) or ["no client replied"]
    return StalledError(
        f"{folder}: no upload was accepted in the last {idle} rounds ({', '.join(reasons)}), so the model does not "
        "change: try a smaller local.lr or set local.clip; audit.jsonl has the reason of every client, and "
        "output.patience the number of such rounds after which a run ends"
    )


def _commit(
    run: RunFolder, kept: Checkpoints, config: Config, state: ServerState, record: Record, row: dict[str, Any]
) -> None:
    """Store a round: its row, its rejected and absent clients, and a checkpoint if one is due."""
    for rejection in record.rejections:
        detail = {"detail": rejection.detail} if rejection.detail else {}
        run.audit.write("reject", round=state.round, client=rejection.client, reason=rejection.reason.name, **detail)
    for client, why in record.absent:
        run.audit.write("absent", round=state.round, client=client, detail=why)
    run.metrics.append(row)
    if state.round % config.output.checkpoint_every == 0 or state.round == config.rounds:
        kept.save(state)
        run.audit.write("commit", round=state.round, clients=len(record.visits), sha256=fingerprint(state))


def _finish(run: RunFolder, setup: Setup, measure: Measure, state: ServerState) -> Outcome:
    """Write the result: the final model, the table of rounds and the summary."""
    rows = run.metrics.rows()
    own = measure.personal(state) if measure.has_personal else measure.own(state)
    run.note("clients.json", {measure.judged_by.metric: [None if x != x else x for x in own.tolist()]})
    write(run.path / "model.safetensors", save(measure.weights(state)))
    run.metrics.write_parquet()
    target, first = setup.config.target, partial(rounds_to, rows, judged_by=measure.judged_by)
    summary = {
        "method": setup.config.method,
        "arguments": setup.config.arguments,
        "algorithm": repr(setup.algorithm),
        "data": setup.title,
        "parameters": len(state.params),
        "identity": setup.config.identity(),
        **best_of(rows, measure.judged_by),
        "target": list(target) if isinstance(target, tuple) else target,
        "rounds_to_target": [first(goal) for goal in target] if isinstance(target, tuple) else first(target),
        "traffic": measure.traffic,
        "sha256": fingerprint(state),
    }
    run.note("summary.json", summary)
    run.audit.write("end", sha256=summary["sha256"])
    return Outcome(run.path, summary)
