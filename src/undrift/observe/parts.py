"""What the lens measures of a scene, part by part, as dicts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from undrift import lens
from undrift.blocks.spectral import Filter, Filters, high_pass
from undrift.compose.grammar import parse
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Layout
from undrift.lens.alignment import PENULTIMATE
from undrift.observe.scene import Scene
from undrift.observe.stale import measure_staleness

Measurements = dict[str, Any]

R = 0.05  # the share removed if the method has no filter of its own
DIRECTIONS = ("top eigenvectors", "random")
JOINT = 1000  # rows of a t-SNE map of several models, at most
LONGEST = 16_384  # numbers in a client's row; longer rows are not stored

_NUMBERS = "the targets are numbers, not classes, by which features are compared"


def spectrum(scene: Scene, filter: Filter | None = None) -> Measurements:
    """Gradients, updates and perturbations band by band, and gradients after a filter."""
    measurements: Measurements = {"gradient": _bands(scene.gradients, scene.layout)}
    skipped: dict[str, str] = {}
    with _note_skipped(skipped, "spectrum/update"):
        measurements["update"] = _bands(scene.updates, scene.layout)
    with _note_skipped(skipped, "spectrum/perturbation"):
        if scene.perturbations is not None:
            measurements["perturbation"] = _bands(scene.perturbations, scene.layout)
    filter = filter or default_filter(scene.simulation.job.algorithm)
    gain = lens.filtering(scene.gradients, scene.layout, filter, seed=scene.seed)
    comparison = "less" if gain["gain"] > 0 else "no less"
    measurements["filtered"] = _bands(scene.gradients, scene.layout, filter, scene.seed) | {
        "filter": repr(filter),
        "filtering": gain,
        "reading": f"What {filter!r} removes of clients' gradients agrees {comparison} than what it keeps "
        f"({gain['agreement/removed']:.2f} and {gain['agreement/kept']:.2f}).",
    }
    bands = len(measurements["gradient"]["consensus"])
    return {"bands": bands, **measurements, "reading": lens.BandConsensus.reading, "skipped": skipped}


@contextmanager
def _note_skipped(skipped: dict[str, str], name: str) -> Iterator[None]:
    """One of several things that a part measures: if it cannot be measured, the reason is noted and the rest stays."""
    try:
        yield
    except (ImportError, ValueError, TypeError, RuntimeError) as error:
        skipped[name] = str(error)


def default_filter(algorithm: Algorithm) -> Filter:
    """The method's own filter, or a high-pass with the usual share."""
    spectral = algorithm.spectral
    own = (spectral.gradient or spectral.perturbation) if isinstance(spectral, Filters) else None
    return own or high_pass(R)


def read_filter(text: str) -> Filter:
    """Parse a filter written as in compositions, for example "highpass(0.1)"."""
    spectral = parse(f"fedavg + gradient:{text}").spectral
    if not isinstance(spectral, Filters) or spectral.gradient is None:
        raise ValueError(f'look: filter must be a filter, for example "highpass(0.1)", got {text!r}')
    return spectral.gradient


def _bands(vectors: Tensor, layout: Layout, filter: Filter | None = None, seed: int = 0) -> Measurements:
    """How far apart vectors are in each band, and how much of it they share."""
    apart = lens.spread(vectors, layout, filter=filter, seed=seed)
    shared = lens.consensus(vectors, layout, filter=filter, seed=seed).overall
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


def staleness(scene: Scene) -> Measurements:
    """Displacements of tasks in flight against fresh ones of the same clients; nothing if no model is stale."""
    found = measure_staleness(scene.simulation, scene.state, len(scene.clients))
    if found is None:
        return {}
    agree, ages = found.agreement, found.ages
    most, least = int(agree.argmax()), int(agree.argmin())
    return {
        "clients": found.clients,
        "ages": ages,
        "agreement": agree,
        "ratio": found.ratio,
        "reading": f"Displacements of age {min(ages)} to {max(ages)} agree with fresh ones of the same clients most in "
        f"band {most} ({agree[most]:.2f}) and least in band {least} ({agree[least]:.2f}), of {len(agree)} from low to "
        f"high; their energy is {float(found.stale.sum() / found.fresh.sum()):.2f} times that of fresh ones.",
    }


def divergence(scene: Scene, filter: Filter | None = None) -> Measurements:
    """How far clients are from their mean, by layer, for gradients also after a filter; the angles between them."""
    filter = filter or default_filter(scene.simulation.job.algorithm)
    after = lens.divergence_by_layer(scene.gradients, scene.layout, filter=filter, seed=scene.seed)
    gradient = lens.divergence_by_layer(scene.gradients, scene.layout)
    measurements: Measurements = {
        "layers": gradient.layers,
        "gradient": gradient.distance,
        "gradient_relative": gradient.relative,
        "filtered": {"filter": repr(filter), "gradient": after.distance, "relative": after.relative},
    }
    skipped: dict[str, str] = {}
    with _note_skipped(skipped, "divergence/update"):
        measurements |= _update_divergence(scene)
    return {**measurements, "skipped": skipped}


def _update_divergence(scene: Scene) -> Measurements:
    """How far clients' updates are from their mean, by layer, and the angles between them."""
    update, angles = lens.divergence_by_layer(scene.updates, scene.layout), lens.cosines(scene.updates)
    mean = lens.off_diagonal(angles)["mean"]
    most, least = int(update.relative.argmax()), int(update.relative.argmin())
    return {
        "update": update.distance,
        "relative": update.relative,
        "clients": update.clients,
        "cosine": {"mean": mean, "matrix": angles},
        "reading": f"Clients' updates pull apart most in {update.layers[most]} ({update.relative[most]:.2f} times the "
        f"length of their mean) and least in {update.layers[least]} ({update.relative[least]:.2f}); "
        f"the mean cosine of two of them is {mean:.2f}.",
    }


def heterogeneity(scene: Scene, filter: Filter | None = None) -> Measurements:
    """|grad F|^2, between- and within-client variance: of gradients, of what a filter keeps and of what it removes."""
    filter = filter or default_filter(scene.simulation.job.algorithm)
    found = lens.heterogeneity(scene.simulation, scene.state, scene.clients, filter=filter, seed=scene.seed)
    before, after = found["whole"].dissimilarity, found["kept"].dissimilarity
    return {
        "filter": repr(filter),
        **{name: numbers.as_dict() for name, numbers in found.items()},
        "reading": f"The mean squared length of clients' gradients is {before:.3g} times that of their mean, and after "
        f"{filter!r} {after:.3g} times; 1 means that all are the same. A projection lowers every variance by "
        "construction: only this ratio shows whether clients agree more on what it keeps.",
    }


def alignment(scene: Scene) -> Measurements:
    """How similar the features of clients' models are after the next round, on the same test examples."""
    matrices = lens.align(scene.features).matrices
    means = {layer: lens.off_diagonal(matrix)["mean"] for layer, matrix in matrices.items()}
    worst = min(means, key=lambda layer: means[layer])
    return {
        "clients": scene.clients,
        "matrix": matrices[PENULTIMATE],
        "layers": means,
        "reading": f"After a round two clients' models see the same examples alike by {means[PENULTIMATE]:.2f} before "
        f"the classifier (CKA, 1 is alike), and least alike in {worst} ({means[worst]:.2f}).",
    }


def embedding(scene: Scene) -> Measurements:
    """Clients' updates, and the global model's features of test examples, in a plane."""
    measurements: Measurements = {}
    skipped: dict[str, str] = {}
    with _note_skipped(skipped, "embedding/pca_update"):
        projection = lens.pca({"update": scene.updates})
        points, explained = projection.points["update"], projection.explained
        measurements["pca_update"] = {"points": points, "clients": scene.clients, "explained": explained}
    with _note_skipped(skipped, "tsne_features"):
        if not scene.task.dataset.classes:
            raise ValueError(_NUMBERS)
        inputs, labels = scene.test
        features = lens.features(scene.module, inputs)[PENULTIMATE]
        points = lens.tsne(features, perplexity=min(30.0, len(features) / 4), seed=scene.seed)
        measurements["tsne_features"] = {"points": points, "labels": labels}
    return {**measurements, "skipped": skipped}


def joint(scene: Scene) -> Measurements:
    """The features of the same test examples by the clients' models and by the global model, in one t-SNE map.

    The global model is that of the checkpoint, the clients' are those they end the next round with. A map keeps no
    distances, so two numbers are of the features themselves: `apart`, the distance of a client's feature of an example
    from the global model's, as a share of the distance of the global model's features from their mean (root mean
    squares); and `separation`, the share of the variance of all features that lies between classes.
    """
    if not scene.task.dataset.classes:
        raise ValueError(_NUMBERS)
    models = [features[PENULTIMATE] for features in scene.features]
    own = lens.features(scene.module, scene.test[0])[PENULTIMATE]
    examples = min(len(own), max(JOINT // (len(models) + 1), 8))
    rows = torch.stack([own, *models])[:, :examples].double()
    labels = scene.test[1][:examples]
    everything, classes = rows.flatten(0, 1), labels.repeat(len(rows))
    spread = (rows[0] - rows[0].mean(dim=0)).square().sum(dim=1).mean()
    return {
        "points": lens.tsne(everything, perplexity=min(30.0, len(everything) / 4), seed=scene.seed),
        "labels": classes,
        "models": [-1] * examples + [client for client in scene.clients for _ in range(examples)],
        "apart": ((rows[1:] - rows[0]).square().sum(dim=2).mean() / spread).sqrt(),
        "separation": lens.class_separation(everything, classes),
    }


def views(scene: Scene) -> Measurements:
    """The rows, one per client, that a report projects onto a plane together with those of other runs.

    They are the perturbation and the weights of the first weight matrix, and the mean features of each class. Rows of
    more than `LONGEST` numbers are left out.
    """
    shapes = zip(scene.layout.names, scene.layout.shapes, scene.layout.sizes, strict=True)
    first = next((name for name, shape, size in shapes if len(shape) > 1 and size <= LONGEST), None)
    tables: dict[str, Tensor] = {}
    skipped: dict[str, str] = {}
    if first is not None:
        with _note_skipped(skipped, "views/perturbations"):
            if scene.perturbations is not None:
                tables[f"perturbations of {first}"] = lens.tensor_rows(scene.perturbations, scene.layout, first)
        with _note_skipped(skipped, "views/weights"):
            tables[f"weights of {first}"] = lens.tensor_rows(scene.models, scene.layout, first)
    labels, classes = scene.test[1], scene.task.dataset.classes
    with _note_skipped(skipped, "views/features"):
        own = [lens.class_means(features[PENULTIMATE], labels, classes) for features in scene.features if classes]
        if own and len(own[0]) <= LONGEST:
            tables["features of each class"] = torch.stack(own)
    rows = {name: [[float(f"{x:.6g}") for x in row] for row in table.tolist()] for name, table in tables.items()}
    return {**rows, "skipped": skipped}


def curvature(scene: Scene) -> Measurements:
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


def surface(scene: Scene, points: int = 21, directions: str = DIRECTIONS[0]) -> Measurements:
    """The loss over a plane through the global model."""
    objective = scene.objective(2)
    plane = scene.eigen.vectors if directions == DIRECTIONS[0] else lens.random_directions(objective, scene.seed)
    drawn = lens.surface(objective, plane[0], plane[1], points=points)
    return {"a": drawn.a, "b": drawn.b, "loss": drawn.loss, "directions": directions}
