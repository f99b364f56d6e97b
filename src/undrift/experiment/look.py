"""The lens on a run, ended or going on: a checkpoint, a few of its clients, and RUN/lens.json.

Everything is read and nothing of the run is touched, so it needs no lock. Runs seen with the same seed are judged on
the same test examples.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from undrift.compose import near
from undrift.experiment import parts as measured
from undrift.experiment.files import write
from undrift.experiment.live import plain
from undrift.experiment.parts import DIRECTIONS, Told
from undrift.experiment.scene import Scene, open_scene

PARTS: Mapping[str, Callable[[Scene], Told]] = {
    "spectrum": measured.spectrum,
    "divergence": measured.divergence,
    "alignment": measured.alignment,
    "embedding": measured.embedding,
    "views": measured.views,
    "curvature": measured.curvature,
    "surface": measured.surface,
}
"""Name -> what measures it."""


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
) -> Told:
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
    _allow(clients, parts, examples, directions)
    torch.set_num_threads(1)  # as in a run: the same bits, and small models lose by more
    path = place(folder, round)
    through = measured.read_filter(filter) if filter else None
    measures = dict(PARTS) | {
        "spectrum": partial(measured.spectrum, filter=through),
        "divergence": partial(measured.divergence, filter=through),
        "surface": partial(measured.surface, points=points, directions=directions),
    }
    with open_scene(folder, seed, clients, examples, round) as scene:
        asked = {"seed": seed, "examples": examples, "points": points, "directions": directions, "filter": filter}
        told: Told = {"round": scene.state.round, "clients": scene.clients, "asked": asked}
        told = _before(path, told) or told | {"seconds": {}, "skipped": {}}
        for part in parts or measures:
            begun = perf_counter()
            told["skipped"].pop(part, None)
            try:
                told[part] = plain(measures[part](scene))
                told["skipped"] |= told[part].pop("skipped", {})
            except (ImportError, ValueError, TypeError, RuntimeError) as error:
                told["skipped"][part] = str(error)
            told["seconds"][part] = float(f"{perf_counter() - begun:.3f}")
    path.parent.mkdir(exist_ok=True)
    write(path, json.dumps(told, indent=1, allow_nan=False) + "\n")
    return told


def place(folder: Path, round: int | None = None) -> Path:
    """Where a look at a run is kept: that at its last state, or that at an earlier one."""
    return folder / "lens.json" if round is None else folder / "lens" / f"{round:07d}.json"


def _before(path: Path, told: Told) -> Told | None:
    """What an earlier look at the same state with the same arguments has left, if there was one."""
    try:
        found: Told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and all(found.get(key) == value for key, value in told.items()) else None


def _allow(clients: int, parts: Sequence[str], examples: int, directions: str) -> None:
    """Refuse what cannot be asked for."""
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"look: no part is named {part!r}; {near(part, PARTS)}")
    if clients < 2:
        raise ValueError(f"look: clients must be 2 or more, since they are compared with each other, got {clients}")
    if examples < 8:
        raise ValueError(f"look: examples must be 8 or more, got {examples}")
    if directions not in DIRECTIONS:
        raise ValueError(f"look: directions must be one of {', '.join(DIRECTIONS)}, got {directions!r}")
