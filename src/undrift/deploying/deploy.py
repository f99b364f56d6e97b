"""A deployment is a run: on the server it has a folder like any other's and resumes there, bit for bit.

In addition to the files of `undrift.runs.folder` it has

deployment.json  the name under which nodes store their clients' states, and the options of the strategy
status.json      what the process is doing, rewritten every few seconds: see `undrift status`
log.txt          the lines of the server's log, with time and level
"""

import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import torch
from torch import nn

from undrift.core.records.types import Local, ServerState
from undrift.core.tasks.task import Task
from undrift.deploying.certificates import Certificates
from undrift.deploying.live_status import LiveStatus
from undrift.deploying.operators import Operators
from undrift.deploying.server_task import server_task, task_record
from undrift.engine.round.evaluate import Evaluate
from undrift.engine.round.record import Record
from undrift.engine.round.simulation import Simulation
from undrift.privacy.statement import Statement
from undrift.runs.folder.audit import past_rejections, past_uploads, past_withdrawals
from undrift.runs.folder.files import (
    RunError,
    RunFolder,
    RunLockedError,
    check_free,
    read_summary,
    reading,
)
from undrift.runs.folder.provenance import find_references, keep_references
from undrift.runs.folder.signature import KEY, audit_key
from undrift.runs.loop.commit import commit, finish, reopen
from undrift.runs.loop.metrics_row import Measure
from undrift.runs.loop.run import check_rounds, is_finished
from undrift.runs.reading.saved_run import Outcome
from undrift.runs.settings.config import Config
from undrift.runs.setup.custom_tasks import named_config, same_task
from undrift.runs.setup.open_simulation import check_budget
from undrift.runs.setup.prepare import Setup, environment, prepare
from undrift.util.shell import DEPLOYMENT_RECORD, SERVER_LOG
from undrift.util.storage.files import read
from undrift.util.version import __version__


class LineFormatter(logging.Formatter):
    """One line per message, with the time in UTC and the level; control characters and tracebacks are left out."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a message."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        text = f"{moment} {record.levelname} {record.getMessage()}"
        return "".join(character if character.isprintable() else " " for character in text).rstrip()


@contextmanager
def server_log(path: Path, name: str = "flwr") -> Iterator[None]:
    """Also write what is logged under a name to a file, until the block ends; an error that ends it is logged too.

    Args:
        path: the file; lines are added to one that is there.
        name: the logger's name.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(LineFormatter())
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        try:
            yield
        except BaseException as error:
            handler.handle(logger.makeRecord(name, logging.ERROR, "", 0, "%s", (_outcome(error),), None))
            raise
        finally:
            logger.removeHandler(handler)


def _outcome(error: BaseException) -> str:
    """Why a run was ended, in one line."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "stopped by a signal"
    return f"failed with {type(error).__name__}: {error}"


LOCKED = 60.0
"""Seconds to wait for the lock of a folder: the process of a killed SuperExec needs a moment to end."""

_UNUSED = {
    "probability": "give cohort=, the number of clients in a round",
    "durations": "tasks take as long as they take",
    "availability": "a node takes part while it is connected",
    "sampling": "the clients of a round are drawn uniformly",
    "failures": "a client whose training fails is rejected, and the run continues",
    "output.keep_best": "store the model in on_round=",
    "output.track": "send the numbers in on_round=",
    "output.lens_every": "the clients' data are on the nodes",
    "output.lens_clients": "the clients' data are on the nodes",
    "output.lens": "the clients' data are on the nodes",
    "output.lens_filter": "the clients' data are on the nodes",
    "output.max_idle": "give patience= to deploy",
    "stop_after": "all rounds are trained",
    "secure": "give secure= to deploy",
}
"""Settings that a deployment does not read, with what holds instead."""

OnRound = Callable[[ServerState, Record], None]

_log = logging.getLogger("flwr")  # Flower shows what is logged here


def deploy(
    grid: Any,
    method: str,
    model: nn.Module | Task,
    local: Local | None = None,
    *,
    folder: Path | str,
    rounds: int,
    population: int | None = None,
    cohort: int | None = None,
    seed: int = 0,
    bound: float | None = None,
    test: Evaluate | None = None,
    on_round: OnRound | None = None,
    timeout: float = 3600.0,
    settings: Mapping[str, Any] | None = None,
    certificates: Sequence[Path | str] = (),
    operators: Path | str | None = None,
    **options: Any,
) -> Outcome:
    """Train on Flower nodes with everything kept in a run's folder; call it in a ServerApp.

    If the folder has this run already, it resumes after its last round, bit for bit as without a stop, or returns
    its result if it has ended. So after any crash the same `flwr run` is given again.

    Args:
        grid: the grid of the ServerApp.
        method: the method as a text, as on the command line: "scaffold", "scaffold + sam(rho=0.05)".
        model: the model with its initial weights; or a task, whose model, clients and held-out data are taken. Its
            clients' data are not read: they are on the nodes.
        local: the settings all clients share.
        folder: the run's folder on the server; one process at a time can have it.
        rounds: rounds in all, over all starts.
        population: how many clients there are in all; None with a task, which has their number.
        cohort: how many clients take part in a round; None takes all.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
        test: a function of the global model that returns a number or numbers by name; None takes the task's own test.
        on_round: called with the state and the record of every round, once they are stored.
        timeout: seconds after which a round is closed, if there is no deadline.
        settings: other keys of a run file: arguments, goal, target, weights, output. Those that a deployment cannot
            follow, such as sampling, are refused.
        certificates: files of the servers' certificates: the audit log has each of them, and each that replaces one.
        operators: the proxy's list of operators, `operators.map`: the audit log has it, and each change of it.
        options: of `UndriftStrategy`: deadline, quorum, grace, over_selection, nodes, wait, poll, patience, ...
            They may differ in every start. `run`, `state` and `evaluate` are not among them.

    Example:
        deploy(grid, "scaffold", model, Local(lr=0.1), folder="runs/first", rounds=50, population=12, deadline=600)
    """
    from undrift.engine.flower.server.strategy import UndriftStrategy

    task = server_task(model, population, test)
    size = task.population if cohort is None else cohort
    given: dict[str, Any] = {"rounds": rounds, "cohort": size, "seed": seed, "bound": bound}
    _check_options(options, settings or {})
    given |= {"engine": "flower", "method": method, "local": local or Local()}
    config = named_config(task, given | dict(settings or {}))
    _check_settings(config, size)
    if config.quarantine is not None:
        options.setdefault("quarantine", config.quarantine)
    strategy = partial(
        UndriftStrategy,
        config.algorithm(),
        task.model(),
        config.local,
        population=task.population,
        cohort=size,
        seed=config.seed,
        bound=config.bound,
        **options,
    )
    strategy()  # raises here if the options do not fit, before a folder is made
    path = Path(folder)
    if is_finished(config, path):
        _log.info("%s has ended: nothing to train", path)
        return Outcome(path, read_summary(path) or {}, trained=False)
    check_rounds(path, config.rounds)
    setup = prepare(config, task=task)
    torch.set_num_threads(1)
    with _open_folder(path, setup.config) as run:
        status = LiveStatus(run.path, setup.config.rounds, task.population, options.get("deadline") or timeout)
        try:
            with server_log(run.path / SERVER_LOG), status.outcome(), _watch_parent():
                _warn_unprotected(config.bound, options)
                watched = (
                    Certificates(certificates, partial(run.audit.write, "certificate")),
                    Operators(operators, partial(run.audit.write, "operators")),
                )
                return _train(run, setup, status, strategy, grid, timeout, options, watched, on_round)
        finally:
            with suppress(OSError):  # a full disk
                run.audit.write("status", sha256=sha256(read(status.path)).hexdigest(), **run.seal_text())


def _train(
    run: RunFolder,
    setup: Setup,
    status: LiveStatus,
    strategy: Callable[..., Any],
    grid: Any,
    timeout: float,
    options: Mapping[str, Any],
    watched: tuple[Certificates, Operators],
    on_round: OnRound | None,
) -> Outcome:
    """Train until the last round."""
    config, task = setup.config, setup.task
    same_task(run.path, task_record(task, config.subject))
    keep_references(run.path, find_references(config))
    run.write("config.toml", config.toml())
    run.note("environment.json", {"undrift": __version__, **environment(), "data": setup.title})
    name = _run_name(run, options)
    hidden = setup.algorithm.release.least > 0
    shares: dict[str, Any] = {"cohort": config.cohort, "secure": options.get("secure")} if hidden else {}
    with _Deployed(setup.algorithm, task, setup.local, seed=config.seed, **shares) as simulation:
        first = simulation.start()
        kept, latest = reopen(run, setup, first)
        state = first if latest is None else latest
        run.rewind(state.round)
        simulation.repeated = len(run.audit.log.of_kinds("resume")) + (latest is not None)
        check_budget(simulation, config)
        if latest is None:  # a start that is killed in its first round resumes from the same weights
            run.commit(kept, first, clients=0)
        measure = Measure(setup, simulation)
        status.begin(name, state.round, str(measure.judged_by))
        _log.info("%s: %s after round %d of %d", run.path, "resumed" if latest else "begun", state.round, config.rounds)

        def store(state: ServerState, record: Record) -> None:
            """Keep a round and its row."""
            status.set_phase("evaluating")
            row = measure.row(state, record, round(getattr(record, "seconds", 0.0), 4))
            row["absent"] = len(record.absent)
            bounds = {name: getattr(record, name, None) for name in ("bound", "typical_norm")}
            row |= {name: x for name, x in bounds.items() if x is not None}
            if limited := getattr(record, "limited_losses", 0):
                row["limited_losses"] = limited
            if uploads := getattr(record, "uploads", {}):
                run.audit.write("accept", round=state.round, uploads=uploads)
            if getattr(record, "abandoned", False):
                run.audit.write("abandoned", round=state.round, clients=len(record.visits))
            commit(run, kept, config, state, record, row)
            trained.records.clear()  # the rows are in metrics.jsonl: long runs take no more memory
            status.close_round(record)
            _check(watched)
            if on_round is not None:
                on_round(state, record)

        trained = strategy(run=name, state=state, on_round=store, watch=status, head=lambda: run.audit.head)
        trained.state = state
        trained.bounds.restore(row.get("typical_norm", 0.0) for row in run.metrics.rows())
        left = past_withdrawals(run.audit.path)
        trained.withdraw(left, lambda node, clients: run.audit.write("forgotten", node=node, clients=clients))
        _check(watched)
        trained.note_hosts(partial(run.audit.write, "hosts"))
        trained.known |= {digest: at for digest, at in past_uploads(run.audit.path).items() if at <= state.round}
        trained.quarantined.restore(past_rejections(run.audit.path), state.round)
        trained.start(grid, trained.arrays(), num_rounds=config.rounds - state.round, timeout=timeout)
        outcome = finish(run, setup, measure, trained.state)
        _log.info("head of the audit log, to note on another machine for undrift verify --anchor: %s", run.audit.head)
        return outcome


def _check(watched: tuple[Certificates, Operators]) -> None:
    """Report what has changed in the files that are watched."""
    for files in watched:
        files.check()


class _Deployed(Simulation):
    """What measures a deployment; its clients are trained on the nodes.

    `repeated` is how often the run was resumed: each time a round may have been released twice, with other noise.
    """

    repeated = 0

    def privacy(self, rounds: int, delta: float | None = None) -> Statement | None:
        """What the run guarantees after some rounds: see `Simulation.privacy`."""
        stated = super().privacy(rounds + self.repeated, delta)
        return stated and replace(stated, randomness="secrets of the nodes, which the server does not know")


def _warn_unprotected(bound: float | None, options: Mapping[str, Any]) -> None:
    """Warn about protections that are not in use: any registered node could use what they prevent."""
    missing = [
        text
        for used, text in (
            (options.get("hosts") is not None, "hosts= (a node may claim the clients of others)"),
            (bound is not None or options.get("adaptive"), "adaptive= or bound= (one upload may replace the model)"),
            (options.get("quarantine") is not None, "quarantine= (a hostile client stays in every round)"),
            (audit_key() is not None, f"{KEY} (a process that may write the folder can forge its log)"),
        )
        if not used
    ]
    if missing:
        _log.warning("NOT PROTECTED, see What is protected in the deployment guide: without %s", "; ".join(missing))


def _check_options(options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse what a run's folder decides."""
    for name in ("run", "state", "watch", "head"):
        if name in options:
            raise ValueError(f"deploy: {name} comes from the run's folder; leave it out")
    if options.get("evaluate"):
        raise ValueError("deploy: evaluate has no place in a run's folder; leave it out, and give test instead")
    if int(dict(settings.get("output", {})).get("checkpoint_every", 1)) != 1:
        raise ValueError(
            "deploy: output.checkpoint_every must be 1: the nodes keep their clients' states for the last rounds only"
        )


def _check_settings(config: Config, cohort: int) -> None:
    """Refuse settings that config.toml would have and the training would not follow."""
    for name, instead in _UNUSED.items():
        part, key = (config.output, name.removeprefix("output.")) if "." in name else (config, name)
        off = name == "output.lens_every" and config.output.lens_every == 0
        if getattr(part, key) != type(part).model_fields[key].default and not off:
            raise ValueError(f"deploy: a deployment does not follow {name}: {instead}; leave it out of settings")
    if config.cohort != cohort:
        raise ValueError(
            f"deploy: settings have cohort {config.cohort}; leave it out of them, and give the number of clients in a "
            "round as the argument cohort="
        )


def _run_name(run: RunFolder, options: Mapping[str, Any]) -> str:
    """The name under which nodes store the states of this run's clients, chosen once; other options are noted."""
    path = run.path / DEPLOYMENT_RECORD
    with reading(path):
        before = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", run.path.resolve().name).strip("-")[:60]
    name = str(before.get("run") or f"{stem or 'run'}-{uuid4().hex[:12]}")
    shown = {key: value for key, value in options.items() if isinstance(value, str | int | float | None)}
    if before and before.get("options") != shown:
        run.audit.write("options", before=before.get("options"), now=shown)
    run.note(DEPLOYMENT_RECORD, {"run": name, "options": shown})
    return name


@contextmanager
def _open_folder(path: Path, config: Config) -> Iterator[RunFolder]:
    """The folder of a run, new or not; waits for its lock."""
    new = not (path / "config.toml").is_file()
    if new:
        check_free(path)
    end = monotonic() + LOCKED
    while True:
        try:
            run = RunFolder.create(path, config) if new else RunFolder.open(path)
            break
        except RunLockedError as error:
            if monotonic() >= end:
                raise
            _log.warning("%s; trying again for %.0f s", error, end - monotonic())
            sleep(2.0)
    with run:
        if new:
            run.audit.write("start", config=config.identity())
        yield run


class _ParentGone(BaseException):
    """The process that started this one has died; no handler of ordinary errors may take it."""


@contextmanager
def _watch_parent() -> Iterator[None]:
    """End the run with an error that names the cause if the process that started this one has died.

    Flower's ServerApp interrupts itself when its SuperExec is gone, and would report that the user stopped it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    parent = os.getppid()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        if os.getppid() != parent:
            raise _ParentGone
        then = before[signal.Signals(number)]
        if callable(then):
            then(number, frame)
        elif then == signal.SIG_DFL:
            raise SystemExit(128 + number)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    except _ParentGone:
        raise RunError(
            f"the process that started this one (SuperExec, process {parent}) has died; start it again, then give the "
            "same flwr run: it resumes after the last round"
        ) from None
    finally:
        for number, then in before.items():
            signal.signal(number, then)
