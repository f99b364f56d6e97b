"""A look at a run's folder: its last whole checkpoint or an earlier one, a few of its clients, only to be read.

Nothing of the run is touched, so it needs no lock and may go on meanwhile.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from undrift.core.types import ServerState
from undrift.experiment.checkpoint import Checkpoints
from undrift.experiment.config import Config, EngineConfig
from undrift.experiment.folder import RunError, check_run, same_data
from undrift.experiment.setup import engine, prepare
from undrift.observe.live import sample_clients
from undrift.observe.look import check, measure
from undrift.observe.parts import DIRECTIONS
from undrift.observe.scene import Scene


def look(
    folder: Path,
    *,
    clients: int = 10,
    parts: Sequence[str] = (),
    seed: int = 0,
    examples: int = 500,
    points: int = 21,
    directions: str = DIRECTIONS[0],
    round: int | None = None,
    filter: str | None = None,
) -> dict[str, Any]:
    """Measure a run where it stands or stood, and return what is then in the file that `place` names.

    What the file has from an earlier look with the same arguments stays beside what is measured now; anything else
    is replaced. A part that cannot be measured is left out, and `skipped` says why. The first part that needs clients'
    vectors, or the leading eigenvectors, pays for them in `seconds`.

    Args:
        folder: the run's.
        clients: at how many of its clients to look; all of them if there are fewer.
        parts: some of `PARTS`; none takes all.
        seed: of the choice of clients and examples, and of all estimates.
        examples: how many of the official test set the model is judged on; the surface takes half of them.
        points: of the surface, each way; odd.
        directions: of the surface, one of `DIRECTIONS`.
        round: after how many rounds to look, of those that were kept; None takes the last one.
        filter: what gradients are also seen after, as compositions write it ("highpass(0.1)"); None takes the method's
            own filter, or a usual one.
    """
    check(clients, parts, examples, directions)
    torch.set_num_threads(1)  # as in a run: the same bits, and small models lose by more
    with open_scene(folder, seed, clients, examples, round) as scene:
        return measure(scene, place(folder, round), parts, points=points, directions=directions, filter=filter)


def place(folder: Path, round: int | None = None) -> Path:
    """Where a look at a run is kept: that at its last state, or that at an earlier one."""
    return folder / "lens.json" if round is None else folder / "lens" / f"{round:07d}.json"


@contextmanager
def open_scene(
    folder: Path, seed: int = 0, clients: int = 10, examples: int = 500, round: int | None = None
) -> Iterator[Scene]:
    """A run's folder as a scene.

    Args:
        folder: the run's.
        seed: of the choice of clients and examples, and of all estimates.
        clients: at how many of its clients to look; all of them if there are fewer.
        examples: how many of the official test set the model is judged on.
        round: after how many rounds to look; None takes the last whole checkpoint.
    """
    check_run(folder)
    setup = prepare(Config.read(folder / "config.toml"))
    same_data(folder, setup.partition)
    # All engines keep clients' states alike, so that this process can read them whatever the run's own engine.
    config = setup.config.model_copy(update={"engine": EngineConfig()})
    with engine(replace(setup, config=config), folder / "clients") as simulation:
        size = len(simulation.start().params)
        state = _state(Checkpoints(folder / "checkpoints", setup.algorithm, size, config.identity()), round)
        chosen = sample_clients(setup.task, clients, seed)
        if len(chosen) < 2:
            raise RunError(f"{folder}: only {len(chosen)} of its clients has examples, and two are needed to compare")
        yield Scene(setup.task, simulation, state, chosen, seed, examples)


def _state(kept: Checkpoints, round: int | None) -> ServerState:
    """A state that was kept."""
    rounds = kept.rounds()
    if round is not None and round not in rounds:
        told = ", ".join(map(str, rounds)) or "none yet"
        raise RunError(
            f"{kept.folder}: round {round} was not kept; there are {told}. To keep rounds 10, 20, 30, 40 set "
            "output.checkpoint_every = 10 and output.keep = 4"
        )
    state = kept.latest() if round is None else kept.load(round)
    if state is None:
        raise RunError(f"{kept.folder}: no round has been kept yet; look again after the first checkpoint")
    return state
