"""Measures a run from its folder: at its last intact checkpoint or an earlier one, with a few of its clients.

The run is only read, so no lock is needed and it may be in progress.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from undrift.core.records.types import ServerState
from undrift.core.tasks.task import Task
from undrift.engine.round.simulation import Simulation
from undrift.observe.live import sample_clients
from undrift.observe.look import check, measure
from undrift.observe.parts import DIRECTIONS
from undrift.observe.scene import Scene
from undrift.runs.folder.checkpoint import Checkpoints
from undrift.runs.folder.files import RunError, check_links, check_run, refuse_deployed, same_data, same_init
from undrift.runs.folder.provenance import check_references
from undrift.runs.reading.best_round import Round, resolve_round, round_folders
from undrift.runs.settings.config import Config
from undrift.runs.settings.engine import EngineConfig
from undrift.runs.settings.initial_weights import describe_init
from undrift.runs.setup.custom_tasks import same_task, task_record
from undrift.runs.setup.open_simulation import open_simulation
from undrift.runs.setup.prepare import Setup, prepare


def look(
    folder: Path,
    *,
    clients: int = 10,
    parts: Sequence[str] = (),
    seed: int = 0,
    examples: int = 500,
    points: int = 21,
    directions: str = DIRECTIONS[0],
    round: Round | None = None,
    filter: str | None = None,
) -> dict[str, Any]:
    """Measure a run at its last or an earlier checkpoint, and return the content of the file that `lens_file` names.

    Measurements already in the file that were made with the same arguments are kept; others are replaced. A part that
    cannot be measured is skipped, and `skipped` has the reason. In `seconds`, the first part that needs the clients'
    vectors or the leading eigenvectors includes the time to compute them.

    Args:
        folder: the run's folder.
        clients: how many clients to measure; all of them if there are fewer.
        parts: some of `PARTS`; none takes all.
        seed: fixes the choice of clients and examples, and all estimates.
        examples: how many examples of the official test set to use; the surface takes half of them.
        points: points of the surface along each direction; odd.
        directions: the directions of the surface, one of `DIRECTIONS`.
        round: after how many rounds to measure, if that checkpoint was kept, or "best", if the run keeps its best round
            (`output.keep_best`); None takes the last one.
        filter: gradients are also measured after this filter, written as in compositions ("highpass(0.1)"); None takes
            the method's own filter, or a default one.
    """
    check(clients, parts, examples, directions)
    torch.set_num_threads(1)  # as in a run: the same bits, and small models are slower with more
    check_run(folder)
    check_links(folder)
    number = None if round is None else resolve_round(folder, round)
    with open_scene(folder, seed, clients, examples, number) as scene:
        return measure(scene, lens_file(folder, number), parts, points=points, directions=directions, filter=filter)


def lens_file(folder: Path, round: int | None = None) -> Path:
    """The file with the measurements of a run: at its last checkpoint, or after an earlier round."""
    return folder / "lens.json" if round is None else folder / "lens" / f"{round:07d}.json"


@contextmanager
def open_scene(
    folder: Path, seed: int = 0, clients: int = 10, examples: int = 500, round: int | None = None
) -> Iterator[Scene]:
    """The scene to measure, from a run's folder.

    Args:
        folder: the run's folder.
        seed: fixes the choice of clients and examples, and all estimates.
        clients: how many clients to measure; all of them if there are fewer.
        examples: how many examples of the official test set to use.
        round: after how many rounds to measure; None takes the last intact checkpoint.
    """
    with open_state(folder, round) as (setup, simulation, state):
        task = setup.data_task  # the lens reads the test set
        chosen = sample_clients(task, clients, seed)
        if len(chosen) < 2:
            raise RunError(f"{folder}: only {len(chosen)} of its clients has examples; comparing needs two")
        yield Scene(task, simulation, state, chosen, seed, examples)


@contextmanager
def open_state(
    folder: Path, round: int | None = None, task: Task | None = None
) -> Iterator[tuple[Setup, Simulation, ServerState]]:
    """A run, a simulation in this process that can read its clients' states, and the server's state after a round.

    Args:
        folder: the run's folder.
        round: after how many rounds; None takes the last intact checkpoint.
        task: the run's task, if it was made in Python.
    """
    check_run(folder)
    refuse_deployed(
        folder,
        "see its metrics with undrift report and, at its end, its final model with undrift export, without --round",
    )
    check_references(folder)
    setup = prepare(Config.read(folder), task=task, folder=folder)
    if setup.partition is not None:
        same_data(folder, setup.partition)
    elif task is not None:
        same_task(folder, task_record(task, setup.config.subject))
    same_init(folder, describe_init(getattr(setup.task, "make", None), setup.config.init))
    # All engines store clients' states the same way, so this process can read them whichever engine the run used.
    config = setup.config.model_copy(update={"engine": EngineConfig()})
    checkpoints, states = round_folders(folder, round)
    with open_simulation(replace(setup, config=config), states) as simulation:
        size = len(simulation.start().params)
        yield setup, simulation, _state(Checkpoints(checkpoints, setup.algorithm, size, config.identity()), round)


def _state(kept: Checkpoints, round: int | None) -> ServerState:
    """The server's state after a round that was kept."""
    rounds = kept.rounds()
    if round is not None and round not in rounds:
        there = ", ".join(map(str, rounds)) or "none yet"
        raise RunError(
            f"{kept.folder}: round {round} was not kept; there are {there}. To keep rounds 10, 20, 30, 40 set "
            "output.checkpoint_every = 10 and output.keep = 4"
        )
    state = kept.latest() if round is None else kept.load(round)
    if state is None:
        raise RunError(f"{kept.folder}: no checkpoint has been written yet; measure again after the first one")
    return state
