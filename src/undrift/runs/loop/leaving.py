"""A client leaves a run: its states are deleted and it is never selected again; or the run is trained without it.

Withdrawing does not change the model: what the client's uploads moved stays in it. `unlearn` trains again from the last
checkpoint before the client's first round, so that the result is that of a run without the client, bit for bit.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from undrift.core.tasks.task import Task
from undrift.engine.round.simulation import Simulation
from undrift.engine.stores.store import delete_states
from undrift.runs.folder.audit import past_withdrawals
from undrift.runs.folder.checkpoint import kept_rounds
from undrift.runs.folder.files import RunError, RunFolder, check_free, check_run, read_json, reading
from undrift.runs.loop.run import Watch, resume
from undrift.runs.reading.saved_run import Outcome
from undrift.runs.setup.open_simulation import open_simulation
from undrift.runs.setup.prepare import prepare
from undrift.util.shell import DEPLOYMENT_RECORD, SERVER_LOG, STATUS
from undrift.util.storage.files import delete

_RESULT = ("summary.json", "model.safetensors", "clients.json", "metrics.parquet", "lens.jsonl")
_OWN = ("lock", "best", DEPLOYMENT_RECORD, SERVER_LOG, STATUS)
"""What a run without the client does not take over; a deployment gets a new name on the nodes."""


def withdraw(folder: Path | str, client: int) -> list[str]:
    """Take a client out of a run that is not in progress; resumed, the run never selects it again.

    The audit log has the event before the states are deleted. The nodes of a deployment delete theirs when the run is
    resumed.

    Args:
        folder: the run's folder.
        client: its number.

    Returns:
        What was deleted, and what is left to do, a line each.
    """
    path = Path(folder)
    with RunFolder.open(path) as run:
        _check_client(path, client)
        if client not in past_withdrawals(run.audit.path):
            run.audit.write("withdraw", client=client)
        lines = [f"client {client} has left {path}: it is never selected again"]
        deleted = _delete_states(path, client)
        lines.append(f"{deleted} states deleted in {path}")
        states = run.config.engine.states
        if states is not None:
            lines.append(f"its states in {states} are yours to delete there: the folder {client // 1000}/{client}")
        if (path / DEPLOYMENT_RECORD).is_file():
            lines.append("its node deletes its states when the run is resumed: give the same flwr run")
    return lines


def unlearn(
    folder: Path | str, client: int, out: Path | str, watch: Watch | None = None, task: Task | None = None
) -> Outcome | None:
    """Train a run again without a client, from the last checkpoint before its first round, in a folder of its own.

    Args:
        folder: the run's folder, which is not changed.
        client: its number.
        out: the folder of the new run.
        watch: called with every row.
        task: the run's task, if it was made in Python.

    Returns:
        The result; None of a deployment, whose nodes train it when `flwr run` is given with the new folder's name.
    """
    source, target = Path(folder), Path(out)
    check_free(target)
    with RunFolder.open(source) as run:
        _check_client(source, client)
        deployed = (source / DEPLOYMENT_RECORD).is_file()
        back = 0
        if not deployed:
            setup = prepare(run.config, task=task, folder=source)
            with open_simulation(setup, source / "clients") as simulation:
                back = _last_without(simulation, kept_rounds(source / "checkpoints"), client)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_OWN, *_RESULT))
    for round in kept_rounds(target / "checkpoints"):
        if round > back or back == 0:
            delete(target / "checkpoints" / f"{round:07d}.json")
            delete(target / "checkpoints" / f"{round:07d}.safetensors")
    if back == 0:
        shutil.rmtree(target / "clients", ignore_errors=True)
    with RunFolder.open(target) as made:
        made.audit.write("unlearn", client=client, round=back)
    withdraw(target, client)
    return None if deployed else resume(target, watch, task)


def _last_without(simulation: Simulation, rounds: list[int], client: int) -> int:
    """The last of some checkpoints in whose rounds a client was never drawn; 0 if there is none."""
    found = 0
    clock, algorithm = simulation.scheduler.clock, simulation.job.algorithm
    if (
        algorithm.fills("selection")
        or algorithm.fills("schedule")
        or (clock is not None and clock.presence is not None)
    ):
        return found  # who takes part is not known without training
    for round in range(max(rounds, default=0)):
        if client in simulation.sample(round):
            break
        found = round + 1 if round + 1 in rounds else found
    return found


def _delete_states(path: Path, client: int) -> int:
    """Delete a client's states in a run's folder; gives how many there were."""
    places = [path / "clients", *(path / "best").glob("clients-*")]
    return sum(delete_states(place, client) for place in places)


def _check_client(path: Path, client: int) -> None:
    """Raise if a run has no such client."""
    check_run(path)
    population = None
    for name in ("task.json", "partition.json"):
        with reading(path / name), suppress(KeyError):
            population = int((read_json(path / name) or {})["clients"])
    if client < 0 or (population is not None and client >= population):
        known = "" if population is None else f"; the run has {population}"
        raise RunError(f"{path}: there is no client {client}: clients are numbered from 0{known}")
