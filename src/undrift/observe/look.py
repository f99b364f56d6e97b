"""Measure a scene part by part and store the results in one JSON file.

Runs measured with the same seed are evaluated on the same test examples.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from undrift.observe import parts as measured
from undrift.observe.parts import DIRECTIONS, Measurements
from undrift.observe.scene import Scene
from undrift.util.naming.names import suggest
from undrift.util.storage.files import write
from undrift.util.storage.jsonable import jsonable

PARTS: Mapping[str, Callable[[Scene], Measurements]] = {
    "spectrum": measured.spectrum,
    "divergence": measured.divergence,
    "heterogeneity": measured.heterogeneity,
    "alignment": measured.alignment,
    "embedding": measured.embedding,
    "joint": measured.joint,
    "views": measured.views,
    "curvature": measured.curvature,
    "surface": measured.surface,
    "staleness": measured.staleness,
}
"""Part -> the function that measures it."""


def measure(
    scene: Scene,
    path: Path,
    parts: Sequence[str] = (),
    *,
    points: int = 21,
    directions: str = DIRECTIONS[0],
    filter: str | None = None,
) -> Measurements:
    """Measure parts of a scene and write them to a file; parts measured earlier with the same arguments are kept.

    A part that cannot be measured is left out, and `skipped` has the reason; if only some of a part cannot be measured,
    under the name of what is missing, as "spectrum/update".

    Args:
        scene: what to measure.
        path: the file.
        parts: names from `PARTS`; empty means all.
        points: of the surface along each axis; odd.
        directions: of the surface, one of `DIRECTIONS`.
        filter: also measure gradients after this filter, written as in compositions; None uses the method's filter.
    """
    through = measured.read_filter(filter) if filter else None
    measures = dict(PARTS) | {
        "spectrum": partial(measured.spectrum, filter=through),
        "divergence": partial(measured.divergence, filter=through),
        "heterogeneity": partial(measured.heterogeneity, filter=through),
        "surface": partial(measured.surface, points=points, directions=directions),
    }
    asked = {
        "seed": scene.seed,
        "examples": scene.examples,
        "points": points,
        "directions": directions,
        "filter": filter,
    }
    measurements: Measurements = {"round": scene.state.round, "clients": scene.clients, "asked": asked}
    measurements = _earlier_measurements(path, measurements) or measurements | {"seconds": {}, "skipped": {}}
    for part in parts or measures:
        begun = perf_counter()
        skipped = {name: why for name, why in measurements["skipped"].items() if not skipped_of(part, name)}
        try:
            measurements[part] = jsonable(measures[part](scene))
            skipped |= measurements[part].pop("skipped", {})
            if not measurements[part]:
                del measurements[part]
        except (ImportError, ValueError, TypeError, RuntimeError) as error:
            skipped[part] = str(error)
        measurements["skipped"] = skipped
        measurements["seconds"][part] = float(f"{perf_counter() - begun:.3f}")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write(path, json.dumps(measurements, indent=1, allow_nan=False) + "\n", follow=False)
    return measurements


def skipped_of(part: str, name: str) -> bool:
    """Whether what was skipped belongs to a part.

    Args:
        part: one of `PARTS`.
        name: a key of `skipped`.

    Example:
        >>> skipped_of("spectrum", "spectrum/update"), skipped_of("surface", "spectrum")
        (True, False)
    """
    return name == part or name.startswith(f"{part}/") or (part, name) == ("embedding", "tsne_features")


def _earlier_measurements(path: Path, request: Measurements) -> Measurements | None:
    """The file's measurements, if they are of the same state with the same arguments."""
    try:
        earlier: Measurements = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(earlier, dict) and all(earlier.get(key) == value for key, value in request.items())
    return earlier if same else None


def check(clients: int, parts: Sequence[str], examples: int, directions: str) -> None:
    """Reject arguments that cannot be used."""
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"look: no part is named {part!r}; {suggest(part, PARTS)}")
    if clients < 2:
        raise ValueError(f"look: clients must be 2 or more, since they are compared with each other, got {clients}")
    if examples < 8:
        raise ValueError(f"look: examples must be 8 or more, got {examples}")
    if directions not in DIRECTIONS:
        raise ValueError(f"look: directions must be one of {', '.join(DIRECTIONS)}, got {directions!r}")
