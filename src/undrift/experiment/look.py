"""The lens on a run, ended or going on: its last whole checkpoint, a few of its clients, and RUN/lens.json.

Everything is read and nothing of the run is touched, so it needs no lock. Runs seen with the same seed are judged on
the same test examples.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from undrift import lens, server
from undrift.blocks.spectral import Filter, high_pass
from undrift.compose import near
from undrift.experiment.files import write
from undrift.experiment.live import plain
from undrift.experiment.scene import Scene, open_scene
from undrift.lens.alignment import PENULTIMATE
from undrift.vector import Layout

Told = dict[str, Any]

R = 0.05  # the share that is filtered away where the method does not say
DIRECTIONS = ("top eigenvectors", "random")


def look(
    folder: Path,
    *,
    clients: int = 10,
    parts: Sequence[str] = (),
    seed: int = 0,
    examples: int = 500,
    points: int = 21,
    directions: str = DIRECTIONS[0],
) -> Told:
    """Measure a run where it stands, write RUN/lens.json in place of an older one, and return what it holds.

    A part that cannot be measured is left out, and `skipped` says why. The first part that needs clients' vectors, or
    the leading eigenvectors, pays for them in `seconds`.

    Args:
        folder: the run's.
        clients: at how many of its clients to look; all of them if there are fewer.
        parts: some of `PARTS`; none takes all.
        seed: of the choice of clients and examples, and of all estimates.
        examples: how many of the official test set the model is judged on; the surface takes half of them.
        points: of the surface, each way; odd.
        directions: of the surface, one of `DIRECTIONS`.
    """
    _allow(clients, parts, examples, directions)
    torch.set_num_threads(1)  # as in a run: the same bits, and small models lose by more
    measures = PARTS | {"surface": partial(_surface, points=points, directions=directions)}
    with open_scene(folder, seed, clients, examples) as scene:
        told: Told = {"round": scene.state.round, "clients": scene.clients, "seconds": {}, "skipped": {}}
        for part in parts or measures:
            begun = perf_counter()
            try:
                told[part] = plain(measures[part](scene))
                told["skipped"] |= told[part].pop("skipped", {})
            except (ImportError, ValueError, TypeError, RuntimeError) as error:
                told["skipped"][part] = str(error)
            told["seconds"][part] = round(perf_counter() - begun, 3)
    write(folder / "lens.json", json.dumps(told, indent=1, allow_nan=False) + "\n")
    return told


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


def _spectrum(scene: Scene) -> Told:
    """Gradients, updates and perturbations band by band, and gradients after a filter."""
    rows = {"gradient": scene.gradients, "update": scene.updates, "perturbation": scene.perturbations}
    told = {name: _bands(x, scene.layout) for name, x in rows.items() if x is not None}
    filter = high_pass(_share(scene))
    gain = lens.filtering(scene.gradients, scene.layout, filter)
    words = "less" if gain["gain"] > 0 else "no less"
    told["filtered"] = _bands(scene.gradients, scene.layout, filter) | {
        "filter": repr(filter),
        "filtering": gain,
        "reading": f"What {filter!r} removes of clients' gradients agrees {words} than what it keeps "
        f"({gain['agreement/removed']:.2f} and {gain['agreement/kept']:.2f}).",
    }
    return {"bands": len(told["gradient"]["consensus"]), **told, "reading": lens.Consensus.reading}


def _share(scene: Scene) -> float:
    """What the method's filter removes of the spectrum, or as much as usual."""
    spectral = scene.simulation.algorithm.spectral
    found = [getattr(filter, "r", None) for filter in (spectral.gradient, spectral.perturbation)]
    return float(next((r for r in found if r is not None), R))


def _bands(vectors: Tensor, layout: Layout, filter: Filter | None = None) -> Told:
    """How far apart vectors are in each band, and how much of it they share."""
    apart = lens.spread(vectors, layout, filter=filter)
    shared = lens.consensus(vectors, layout, filter=filter).overall
    agree, overall = shared["agreement"], apart.overall
    most, least = int(agree.argmax()), int(agree.argmin())
    return {
        "layers": apart.layers,
        "raw": {"distance": apart.distance, "std": apart.deviation, "variance": apart.variance},
        "normalised": apart.normalised,
        "overall": {"std": overall.pop("deviation"), **overall},
        "consensus": shared["ratio"],
        "agreement": agree,
        "energy_share": shared["energy_share"],
        "reading": f"Clients agree most in band {most} ({agree[most]:.2f}) and least in band {least} "
        f"({agree[least]:.2f}), of {len(agree)} from low to high; 1 is everything, 0 is nothing.",
    }


def _divergence(scene: Scene) -> Told:
    """How far clients are from their mean, layer by layer, and the angles between them."""
    gradient, update = (lens.divergence_by_layer(x, scene.layout) for x in (scene.gradients, scene.updates))
    angles = lens.cosines(scene.updates)
    mean = lens.off_diagonal(angles)["mean"]
    most, least = int(update.relative.argmax()), int(update.relative.argmin())
    return {
        "layers": update.layers,
        "gradient": gradient.distance,
        "update": update.distance,
        "relative": update.relative,
        "clients": update.clients,
        "cosine": {"mean": mean, "matrix": angles},
        "reading": f"Clients' updates pull apart most in {update.layers[most]} ({update.relative[most]:.2f} times the "
        f"length of their mean) and least in {update.layers[least]} ({update.relative[least]:.2f}); "
        f"the mean cosine of two of them is {mean:.2f}.",
    }


def _alignment(scene: Scene) -> Told:
    """Whether clients' models after the next round see the same test examples alike."""
    inputs, models = scene.test[0], server.send(scene.simulation.algorithm, scene.state).params + scene.updates
    layers = [PENULTIMATE, *_outlets(scene.module, inputs[:2])]
    found = lens.align(lens.client_features(scene.module, models, inputs, layers)).matrices
    means = {layer: lens.off_diagonal(matrix)["mean"] for layer, matrix in found.items()}
    worst = min(means, key=lambda layer: means[layer])
    return {
        "clients": scene.clients,
        "matrix": found[PENULTIMATE],
        "layers": means,
        "reading": f"After a round two clients' models see the same examples alike by {means[PENULTIMATE]:.2f} before "
        f"the classifier (CKA, 1 is alike), and least alike in {worst} ({means[worst]:.2f}).",
    }


def _outlets(module: nn.Module, inputs: Tensor) -> list[str]:
    """The stages of a model that give out one tensor with a row for every input."""
    parts, found = dict(module.named_modules()), dict[str, bool]()

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, gave: Any) -> None:
            found[name] = isinstance(gave, Tensor) and gave.dim() > 1 and len(gave) == len(inputs)

        return hook

    hooks = [parts[name].register_forward_hook(note(name)) for name in _stages(module)]
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return [name for name, fits in found.items() if fits]


def _stages(module: nn.Module) -> list[str]:
    """The outermost parts of a model; a chain of blocks counts by its blocks."""
    names: list[str] = []
    for name, part in module.named_children():
        blocks = part.named_children() if isinstance(part, nn.Sequential) else ()
        names += [f"{name}.{n}" for n, block in blocks if list(block.children())] or [name]
    return names


def _embedding(scene: Scene) -> Told:
    """Clients' updates, and the global model's features of test examples, in a plane."""
    found = lens.pca({"update": scene.updates})
    told: Told = {
        "pca_update": {"points": found.points["update"], "clients": scene.clients, "explained": found.explained}
    }
    inputs, labels = scene.test
    features = lens.features(scene.module, inputs)[PENULTIMATE]
    try:
        points = lens.tsne(features, perplexity=min(30.0, len(features) / 4), seed=scene.seed)
    except ImportError as error:
        return {**told, "skipped": {"tsne_features": str(error)}}
    return {**told, "tsne_features": {"points": points, "labels": labels}}


def _curvature(scene: Scene) -> Told:
    """How sharp the global model's minimum is."""
    objective = scene.objective()
    trace = lens.trace(objective, seed=scene.seed)
    return {
        "top": scene.eigen.values,
        "trace": trace.mean,
        "trace_error": trace.error,
        "sharpness": lens.sharpness(objective),
        "gradient_norm": lens.gradient_norm(objective),
        "examples": objective.examples,
    }


def _surface(scene: Scene, points: int = 21, directions: str = DIRECTIONS[0]) -> Told:
    """The loss over a plane through the global model."""
    objective = scene.objective(2)
    plane = scene.eigen.vectors if directions == DIRECTIONS[0] else lens.random_directions(objective, scene.seed)
    drawn = lens.surface(objective, plane[0], plane[1], points=points)
    return {"a": drawn.a, "b": drawn.b, "loss": drawn.loss, "directions": directions}


PARTS: dict[str, Callable[[Scene], Told]] = {
    "spectrum": _spectrum,
    "divergence": _divergence,
    "alignment": _alignment,
    "embedding": _embedding,
    "curvature": _curvature,
    "surface": _surface,
}
"""Name -> what measures it."""
