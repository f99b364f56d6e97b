"""A run again from its trace of arrivals: the same tasks from the same models, and the same hash after every step."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from undrift.core.server.wire import fingerprint
from undrift.core.tasks.task import Task
from undrift.engine.round.arrivals import model_hash
from undrift.engine.round.simulation import Simulation
from undrift.runs.folder.audit import read_log, round_of
from undrift.runs.folder.audit_checks import ARRIVALS
from undrift.runs.folder.files import RunError, check_run
from undrift.runs.folder.provenance import check_references
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import resolve_engine
from undrift.runs.setup.open_simulation import open_simulation
from undrift.runs.setup.prepare import prepare
from undrift.util.shell import DEPLOYMENT_RECORD
from undrift.util.storage.metrics import Metrics


@dataclass(frozen=True)
class Replayed:
    """What `replay` found.

    Args:
        folder: the run's folder.
        steps: how many steps of the server were made again.
        uploads: how many uploads were added in them.
        differs: the first step, from 1, after which the model is another; None if all are the same.
        sha256: the hash of the last state that was reached.
    """

    folder: Path
    steps: int
    uploads: int
    differs: int | None
    sha256: str

    @property
    def same(self) -> bool:
        """Whether every step ended with the hash that the run has noted."""
        return self.differs is None


def replay(
    folder: Path | str,
    *,
    task: Task | None = None,
    watch: Callable[[int, int], None] | None = None,
    **engine: Any,
) -> Replayed:
    """Make the steps of a run again from its trace of arrivals, and compare the hash after each.

    Nothing in the run's folder is changed; clients' states are kept in a temporary folder. It ends at the first step
    that differs.

    Args:
        folder: the run's folder, finished or not, or its arrivals.jsonl.
        task: the run's task, if it was made in Python; of a deployment, the task with the data of all clients.
        watch: called after every step with its number, from 1, and their number.
        engine: settings of `engine` other than the run's: `name`, `workers`, `device`; a deployment is replayed in one
            process unless `name` is given.

    Example:
        >>> replay("runs/mine").same  # doctest: +SKIP
        True
    """
    folder = Path(folder).parent if Path(folder).name == ARRIVALS else Path(folder)
    check_run(folder)
    rows = Metrics(folder / ARRIVALS).rows()
    if [row["round"] for row in rows] != list(range(1, len(rows) + 1)) or not rows:
        raise RunError(
            f"{folder / ARRIVALS}: no trace of arrivals from the first step on; runs with a schedule or durations have "
            "one, see docs/guide/asynchronous.md"
        )
    check_references(folder)
    with (
        TemporaryDirectory(prefix="undrift-replay-") as states,
        _open(folder, Path(states), task, engine) as simulation,
    ):
        state, uploads, differs = simulation.start(), 0, None
        for step, row in enumerate(rows, 1):
            state, record = simulation.round(state, trace=row)
            uploads += len(record.visits)
            if model_hash(state) != row["sha256"]:
                differs = step
                break
            if watch is not None:
                watch(step, len(rows))
        found = fingerprint(state)
    commits = read_log(folder / "audit.jsonl").of_kinds("commit")
    if differs is None and any(round_of(one) == state.round and one["sha256"] != found for one in commits[-1:]):
        differs = state.round  # what is in flight is another
    return Replayed(folder, state.round, uploads, differs, found)


@contextmanager
def _open(folder: Path, states: Path, task: Task | None, engine: Mapping[str, Any]) -> Iterator[Simulation]:
    """The simulation of the run in a folder, on another engine if one is given."""
    values = Config.read(folder).model_dump()
    if (folder / DEPLOYMENT_RECORD).is_file():
        values["engine"]["name"] = "local"
        if task is None:
            raise RunError(f"{folder} is a deployment: its clients' data are on its nodes; give a task that has them")
    values["engine"] |= {"states": None, **{name: x for name, x in engine.items() if x is not None}}
    config = Config.build(values)
    config = config.model_copy(update={"engine": resolve_engine(config.engine)})
    with open_simulation(prepare(config, task=task, folder=folder), states) as simulation:
        yield simulation
