"""One run, from its start or its last checkpoint to its end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import torch

from undrift.core.records.types import ServerState
from undrift.core.tasks.task import Task
from undrift.data.partitions.draw import parse
from undrift.engine.round.record import Record
from undrift.observe.live import Live
from undrift.runs.folder.audit import past_rejections, past_withdrawals, read_log
from undrift.runs.folder.audit_checks import check_open
from undrift.runs.folder.checkpoint import Checkpoints, kept_rounds
from undrift.runs.folder.files import RunError, RunFolder, check_free, read_summary, refuse_deployed
from undrift.runs.folder.judge import Plateau
from undrift.runs.folder.preprocess_file import keep_preprocess
from undrift.runs.folder.provenance import check_references, find_references, keep_references
from undrift.runs.folder.signature import audit_key
from undrift.runs.loop.commit import commit, finish, judge_again, reopen
from undrift.runs.loop.metrics_row import Measure
from undrift.runs.loop.stall import check_stalled, idle_rounds, record_stop, rejection_reasons, stall_error
from undrift.runs.reading.best_round import BEST, KeepBest
from undrift.runs.reading.saved_run import Outcome
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import device_change, resolve_engine, states_root, warn_device_change
from undrift.runs.settings.initial_weights import describe_init
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.custom_tasks import named_config, same_task, task_record
from undrift.runs.setup.open_simulation import open_simulation, runs_behind
from undrift.runs.setup.prepare import CLIENTS, Setup, cohort_size, environment, prepare
from undrift.util.shell import as_argument
from undrift.util.steps import tell_rounds
from undrift.util.storage.files import make_private
from undrift.util.storage.summary import has_ended
from undrift.util.version import __version__

Row = dict[str, Any]


class Behind:
    """Evaluates rounds in a thread, one at a time, and stores each before the next one is evaluated.

    Rounds are stored in order. A run that is killed in between resumes from the round before, to the same bits. If the
    block is left by an error, the round that is being evaluated is stored first.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "evaluation", initializer=torch.set_num_threads, initargs=(1,))
        self._pending: tuple[Future[Row], Callable[[Row], None]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.finish()
        finally:
            self._thread.shutdown()

    def begin(self, evaluate: Callable[[], Row], store: Callable[[Row], None]) -> None:
        """Evaluate a round from now on.

        Args:
            evaluate: gives its row; called in the thread.
            store: called with the row by `finish`, in the thread that calls it.
        """
        self.finish()
        self._pending = self._thread.submit(evaluate), store

    def finish(self) -> None:
        """Wait for the round that is being evaluated, if there is one, and store it."""
        if self._pending is not None:
            (found, store), self._pending = self._pending, None
            store(found.result())


@contextmanager
def trackers(names: Sequence[str], folder: Path, config: Config) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Open trackers by name and yield a function that sends a row to each; they are closed at the end."""
    opened = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
    with ExitStack() as stack:
        loggers = [opened[name](stack, folder, config) for name in names]

        def track(row: Mapping[str, Any]) -> None:
            numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k != "round"}
            for log in loggers:
                log(numbers, int(row["round"]))

        yield track


Log = Callable[[Mapping[str, float], int], None]


def _tensorboard(stack: ExitStack, folder: Path, _: Config) -> Log:
    """Event files in the run's folder."""
    make_private(folder / "tensorboard")
    writer = _library("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))
    stack.callback(writer.close)

    def log(numbers: Mapping[str, float], round: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, round)

    return log


def _mlflow(stack: ExitStack, folder: Path, config: Config) -> Log:
    """A run in the experiment that MLflow's own settings name."""
    mlflow = _library("mlflow", "mlflow")
    stack.enter_context(mlflow.start_run(run_name=folder.name))
    mlflow.log_params({"method": config.method, "data": config.subject, "seed": config.seed})
    return lambda numbers, step: mlflow.log_metrics(dict(numbers), step=step)


def _wandb(stack: ExitStack, folder: Path, config: Config) -> Log:
    """A run in the project that W&B's own settings name."""
    wandb = _library("wandb", "wandb")
    run = wandb.init(name=folder.name, dir=str(folder), config=config.model_dump())
    stack.callback(run.finish)
    return lambda numbers, step: run.log(dict(numbers), step=step)


def _library(module: str, extra: str) -> Any:
    """Import an optional library, or raise an error with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"output.track: {extra} is not installed: pip install 'undrift[{extra}]'") from None


Watch = Callable[[dict[str, Any]], None]


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
        resume: continue a run of the same settings and task that is in the folder, or return its result if it has
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
    made, named = None if isinstance(task, str) else task, config is None
    config = named_config(task, settings) if config is None else config
    path = Path(folder)
    if resume and (path / "config.toml").is_file():
        if made is not None and is_finished(config, path):
            same_task(path, task_record(made, config.subject))
        return _continue(config, path, partial(prepare, config, task=made, folder=path), watch)
    check_free(path, python=named)
    _resolve_device(config)  # raises here if the device is missing, before data are loaded
    setup = prepare(config, task=made) if setup is None else setup
    with RunFolder.create(path, setup.config) as run:
        run.audit.write("start", config=setup.config.identity())
        return _train(run, setup, watch)


def resume(folder: Path | str, watch: Watch | None = None, task: Task | None = None, **changes: Any) -> Outcome:
    """Resume a run from its last intact checkpoint; the result equals that of an uninterrupted run bit for bit.

    Args:
        folder: the run's folder.
        watch: called with every row.
        task: the run's task, if it was made in Python.
        changes: settings to change: `rounds`, `stop_after`, and those of `engine`, which do not affect results;
            another kind of device changes their bits, which a warning reports.
    """
    folder = Path(folder)
    refuse_deployed(folder, "to resume, give the same flwr run again")
    with RunFolder.open(folder) as run:
        check_references(folder)
        values = run.config.model_dump()
        values |= {key: x for key in ("rounds", "stop_after") if (x := changes.pop(key, None)) is not None}
        values |= {"engine": {**values["engine"], **changes}}
        config = Config.build(values)
        done = read_summary(folder)
        if done is not None and has_ended(done, values):
            return Outcome(folder, done, trained=False)
        check_rounds(folder, config.rounds)
        why = device_change(run.config.engine, _resolve_device(config).engine)
        if why is not None:
            warn_device_change(folder, why)
            run.audit.write("device", before=run.config.engine.device, now=config.engine.device, detail=why)
        return _train(run, prepare(config, task=task, folder=folder), watch)


def _continue(config: Config, folder: Path, ready: Callable[[], Setup], watch: Watch | None) -> Outcome:
    """Continue a run that is in a folder, or return its result."""
    ended = is_finished(config, folder)
    if ended:
        check_open(folder, read_log(folder / "audit.jsonl", audit_key()))
    else:
        complete(config, folder, ready, watch)
    return Outcome(folder, judge_again(folder, config), trained=not ended)


def is_finished(config: Config, folder: Path) -> bool:
    """Whether a folder contains this run up to its end; raises for another run. Loads no data."""
    if not (folder / "config.toml").is_file():
        return False
    check_references(folder)
    there = Config.read(folder)
    left = {name: getattr(there, name) for name in ("clients", "model") if getattr(config, name) is None}
    left |= {"goal": there.goal} if config.goal is None else {}
    if config.probability is None and not isinstance(config.cohort, int):
        left["cohort"] = cohort_size(config.cohort, there.clients or CLIENTS)
    given = Config.build(config.model_dump() | left | {"partition": str(parse(config.partition))})
    _check_same(folder, there, given)
    return has_ended(read_summary(folder) or {}, dict(config))


def complete(config: Config, folder: Path, ready: Callable[[], Setup], watch: Watch | None = None) -> None:
    """Bring a run to its last round: start it, resume it, or do nothing if it is finished.

    Args:
        config: the settings.
        folder: the run's folder, new or not.
        ready: returns what `prepare(config)` would; called only if there is something to run.
        watch: called with every row.
    """
    if is_finished(config, folder):
        return
    check_rounds(folder, config.rounds)
    check_stalled(folder, config.output.max_idle)
    setup = ready()
    if not (folder / "config.toml").is_file():
        start(config, folder, watch, setup)
        return
    with RunFolder.open(folder) as run:
        why = device_change(run.config.engine, _resolve_device(config).engine)
        if why is not None:
            raise RunError(
                f"{folder}: {why}, so that its bits would not be those of an uninterrupted run; leave the device as it "
                f"was, or accept it with: undrift resume {as_argument(folder)} --device {config.engine.device}"
            )
        _train(run, setup, watch, True)


def check_rounds(folder: Path, rounds: int) -> None:
    """Raise if a run has more rounds than wanted.

    Args:
        folder: the run's folder, new or not.
        rounds: how many are wanted.
    """
    done = max(kept_rounds(folder / "checkpoints"), default=0)
    if rounds < done:
        raise RunError(f"{folder} has {done} rounds already, {rounds} cannot take any back; give {done} or more")


def _resolve_device(config: Config) -> Config:
    """The settings with a device that exists."""
    return config.model_copy(update={"engine": resolve_engine(config.engine)})


def _check_same(folder: Path, there: Config, given: Config) -> None:
    """Raise if the run in a folder has other settings."""
    if given.identity() != there.identity():
        raise RunError(
            f"{folder} contains a run with other settings ({', '.join(_changes(there, given))}); "
            "name another folder with --out, or move this one away to run it again"
        )


def _changes(there: Config, given: Config) -> list[str]:
    """The settings in which two runs differ, with both values."""
    differences = []
    for key, value in given.model_dump(exclude={"engine", "output", "rounds", "stop_after", "target", "local"}).items():
        differences += [f"{key}: {getattr(there, key)!r} there, {value!r} given"] * (getattr(there, key) != value)
    for key, value in asdict(given.local).items():
        before = getattr(there.local, key)
        differences += [f"local.{key}: {before!r} there, {value!r} given"] * (before != value)
    return differences


def _train(run: RunFolder, setup: Setup, watch: Watch | None, again: bool = False) -> Outcome:
    """Train until the last round.

    Args:
        run: the folder.
        setup: what to train.
        watch: called with every row.
        again: whether idle rounds before count for `output.max_idle`, as if the run had not stopped.
    """
    config = _resolve_device(setup.config)
    setup = replace(setup, config=config)
    _check_same(run.path, run.config, config)  # before anything is written: defaults that were left out may differ
    torch.set_num_threads(1)
    if setup.partition is None:
        same_task(run.path, task_record(setup.task, config.subject))
    else:
        keep_preprocess(run.path, setup.data_task.dataset.preprocess)
        run.describe(setup.partition)
    keep_references(run.path, find_references(config, getattr(setup.task, "dataset", None)))
    run.begin_from(describe_init(getattr(setup.task, "make", None), config.init))
    states_root(run.path / "clients", config.engine.states)  # raises before another place is written down
    run.write("config.toml", config.toml())
    run.note("environment.json", {"undrift": __version__, **environment(), "data": setup.title})
    noted = partial(run.note, "engine.json")
    with record_stop(run.audit.path), open_simulation(setup, run.path / "clients", noted) as simulation:
        first = simulation.start()
        kept, latest = reopen(run, setup, first)
        state = first if latest is None else latest
        simulation.quarantined.withdrawn |= past_withdrawals(run.audit.path)
        simulation.quarantined.restore(past_rejections(run.audit.path), state.round)
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
        tell_rounds(state.round, config.rounds)
        live.rewind(state.round)  # before the metrics, which tell how an earlier version counted rounds
        run.rewind(state.round)
        best: KeepBest | None = None
        if output.keep_best:
            only = Checkpoints(run.path / BEST, setup.algorithm, len(first.params), config.identity(), keep=1)
            best = KeepBest(only, run.path / "clients", measure.judged_by, run.metrics.rows())
            best.resume(state, partial(run.commit, event="best"))
        idle = idle_rounds(run.metrics.rows()) if again else 0
        plateau = Plateau(measure.judged_by, run.metrics.rows())

        def ended() -> bool:
            return 0 < config.stop_after <= plateau.stale

        def store(state: ServerState, record: Record, row: dict[str, Any]) -> None:
            """Keep a round and its row."""
            nonlocal idle
            if best is not None:
                best.after(state, row, partial(run.commit, event="best"))
            plateau.take(row)
            commit(run, kept, config, state, record, row, last=ended())
            track(row)
            if watch is not None:
                watch(row)
            idle = 0 if record.visits else idle + 1
            if idle >= output.max_idle:
                raise stall_error(run.path, rejection_reasons(record), idle)

        apart = runs_behind(config) and best is None and not config.stop_after  # both depend on every evaluation
        left = 0 if ended() else config.rounds - state.round
        with trackers(config.output.track, run.path, config) as track, Behind() as behind:
            begun = perf_counter()
            for state, record in simulation.rounds(left, state):  # noqa: B020
                seconds = perf_counter() - begun
                simulation.history.rewind(0)  # the rows are in metrics.jsonl: long runs take no more memory
                behind.finish()
                if apart and not measure.needs_workers(state) and not live.due(state):
                    behind.begin(partial(measure.row, state, record, seconds), partial(store, state, record))
                else:
                    store(state, record, measure.row(state, record, seconds) | live.after(state, record))
                if ended():
                    break
                begun = perf_counter()
        return finish(run, setup, measure, state, best)
