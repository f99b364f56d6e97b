"""What a run stores: its latest state to resume from, every round, and the result at its end."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save

from undrift.core.records.types import ServerState
from undrift.core.server.wire import fingerprint
from undrift.core.tasks.durations import SECOND
from undrift.data import DataTask
from undrift.data.tasks.constant import constant_scores
from undrift.engine.round.arrivals import arrival_row
from undrift.engine.round.record import Record
from undrift.runs.folder.audit import VERSION, write_outcomes
from undrift.runs.folder.checkpoint import CheckpointError, Checkpoints
from undrift.runs.folder.files import RunFolder, as_json, read_summary
from undrift.runs.folder.judge import (
    Row,
    evaluated_columns,
    judged_rows,
    measured_rows,
    result_column,
    rounds_to,
    run_summary,
)
from undrift.runs.loop.metrics_row import Measure
from undrift.runs.reading.best_round import KeepBest
from undrift.runs.reading.saved_run import Outcome
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.runs.setup.prepare import Setup
from undrift.util.steps import warn


def reopen(run: RunFolder, setup: Setup, first: ServerState) -> tuple[Checkpoints, ServerState | None]:
    """The checkpoints of a run and the latest intact one, None in a new run.

    Newer ones that are damaged are in the audit log and are reported as warnings.

    Args:
        run: its folder.
        setup: what it trains.
        first: the state before its first round.
    """
    output = setup.config.output
    identity = setup.config.identity()
    folder = run.path / "checkpoints"
    kept = Checkpoints(folder, setup.algorithm, len(first.params), identity, output.keep, log=run.audit.log)
    damaged: list[CheckpointError] = []

    def refuse(error: CheckpointError) -> None:
        run.audit.write("refused", checkpoint=str(error))
        damaged.append(error)

    latest = kept.latest(refuse)
    state = first if latest is None else latest
    for error in damaged:
        warn("%s; resuming after round %d", error, state.round)
    event, every = "begin" if latest is None else "resume", output.checkpoint_every
    facts = {"every": every, "keep": output.keep, "log": VERSION}
    run.begin(event, round=state.round, sha256=fingerprint(state), **facts)
    return kept, latest


def commit(
    run: RunFolder,
    kept: Checkpoints,
    config: Config,
    state: ServerState,
    record: Record,
    row: dict[str, Any],
    *,
    last: bool = False,
) -> None:
    """Store a round: its rows, its rejected and absent clients, and a checkpoint if one is due or the run ends here."""
    write_outcomes(run.audit.write, state.round, record)
    due = last or state.round % config.output.checkpoint_every == 0 or state.round == config.rounds
    if record.plan is not None:
        run.arrivals.append(arrival_row(state, record.plan, record.outcomes), sync=due)
    run.metrics.append(row, sync=due)
    if due:
        run.commit(kept, state, clients=len(record.visits))


def measure_last(run: RunFolder, measure: Measure, state: ServerState) -> None:
    """Evaluate the last round if that was not due when it was stored: the run had more rounds to go then.

    Args:
        run: its folder.
        measure: measures its rounds.
        state: the state after the last round.
    """
    row = next(reversed(run.metrics.rows()), {})
    done = evaluated_columns(row) and (not measure.has_personal or measured_rows([row], measure.judged_by))
    if done or row.get("round") != state.round or "evaluate_seconds" not in row:
        return
    names = list(row)
    before, after = names[: names.index("seconds") + 1], names[names.index("evaluate_seconds") + 1 :]
    found = {name: row[name] for name in before} | measure.evaluation(state) | {name: row[name] for name in after}
    if found.keys() != row.keys():
        run.metrics.amend(found, lambda seal: run.audit.write("measured", round=state.round, rows=seal))


def finish(run: RunFolder, setup: Setup, measure: Measure, state: ServerState, best: KeepBest | None = None) -> Outcome:
    """Write the result: the final model, the table of rounds and the summary."""
    measure_last(run, measure, state)
    rows = run.metrics.rows()
    if best is not None and rows and rows[-1]["round"] == state.round:
        best.after(state, rows[-1], partial(run.commit, event="best"))
    own = measure.personal(state) if measure.has_personal else measure.own(state)
    clients = {measure.judged_by.metric: [None if x != x else x for x in own.tolist()]}
    private = measure.simulation.privacy(state.round, setup.config.delta)
    summary = {
        "method": setup.config.method,
        "arguments": setup.config.arguments,
        "algorithm": repr(setup.algorithm),
        "data": setup.title,
        "parameters": len(state.params),
        "identity": setup.config.identity(),
        **run_summary(rows, measure.judged_by),
        **_targets(rows, setup.config.target, measure.judged_by),
        **_constant(setup),
        **({"stop_after": setup.config.stop_after} if state.round < setup.config.rounds else {}),
        **({} if state.flight is None else {"virtual_seconds": state.flight.time / SECOND}),
        "traffic": measure.traffic,
        "privacy": "none" if private is None else private.row(),
        "sha256": fingerprint(state),
    }
    files = {
        "clients.json": as_json(clients),
        "model.safetensors": save(measure.weights(state)),
        "metrics.parquet": run.metrics.parquet(),
        "summary.json": as_json(summary),
    }
    run.end(files, str(summary["sha256"]))
    return Outcome(run.path, summary)


def _constant(setup: Setup) -> dict[str, Any]:
    """What a constant answer reaches on the test set, for a run on a data set."""
    found = constant_scores(setup.task) if isinstance(setup.task, DataTask) else {}
    return {"constant": found} if found else {}


def judge_again(folder: Path, config: Config) -> dict[str, Any]:
    """The summary of a finished run by another goal or target, from its rows; summary.json stays as it is.

    Args:
        folder: the run's folder.
        config: the settings; a goal or a target that is None is that of the run.
    """
    summary, (rows, column) = read_summary(folder) or {}, judged_rows(folder, config)
    rows, before = rows[: summary["rounds"]], result_column(summary)
    if config.target is None and (column, column.direction) == (before, before.direction):
        return summary
    there = summary.get("target")
    stored = tuple(there) if isinstance(there, list) else there
    target = stored if config.target is None else config.target
    others = {key: value for key, value in summary.items() if key not in run_summary(rows, before)}
    return others | run_summary(rows, column) | _targets(rows, target, column)


def _targets(rows: Sequence[Row], target: float | tuple[float, ...] | None, column: Column) -> dict[str, Any]:
    """The targets of a summary, and the rounds that reached them."""
    first = partial(rounds_to, rows, judged_by=column)
    if isinstance(target, tuple):
        return {"target": list(target), "rounds_to_target": [first(one) for one in target]}
    return {"target": target, "rounds_to_target": first(target)}
