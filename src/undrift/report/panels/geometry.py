"""Figures of where clients and models lie: updates and features on a plane, and the loss landscape."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from undrift.lens import pca
from undrift.report.draw.assemble import Matrix, numbers, side_by_side
from undrift.report.draw.description import (
    Axis,
    Figure,
    Grid,
    Panel,
    grid_panel,
    number_text,
    point_panel,
    slug,
    with_setting,
)
from undrift.report.loaded import Group, Material

_Shape = Literal["contour", "surface"]

_KINDS: tuple[tuple[_Shape, str], ...] = (("contour", "from above"), ("surface", "as a surface"))
CLIENTS, GLOBAL_MODEL = 20, 22  # styles that no named class has: grey, and orange, drawn later
NAMED = 20  # with more classes the legend is left out
WIDE = 20  # a landscape with a larger ratio of highest to lowest loss is drawn on a log scale


def plane(material: Material) -> Iterator[Figure]:
    """Clients' updates, and their features, on a plane."""
    for setting in material.settings:
        groups = material.within(setting)
        yield from side_by_side(
            [(group.label, _scatter(group, "pca_update", "clients", "direction")) for group in groups],
            ("updates", setting),
            with_setting("Clients' updates on their two main directions", setting),
            "Each point is a client: points close together moved the model the same way.",
            "updates",
        )
        yield from _views(groups, setting)
        yield from _joint(groups, setting)
        yield from side_by_side(
            [(group.label, _scatter(group, "tsne_features", "labels", "t-SNE direction")) for group in groups],
            ("features", setting),
            with_setting("Features of test examples", setting),
            "Colours are classes: separate islands are classes that the model tells apart; distances between islands "
            "mean nothing.",
            "features",
        )


def _joint(groups: Sequence[Group], setting: str) -> Iterator[Figure]:
    """Features of the clients' models and the global model in one map: by class, then by model."""
    seen = [(group, joint[0]) for group in groups if (joint := group.lens("joint"))]
    by_class = [
        (f"{g.label}, separation {number_text(x.get('separation'), '.0%')}", _map(x, "classes")) for g, x in seen
    ]
    by_model = [(f"{g.label}, apart {number_text(x.get('apart'), '.2g')}", _map(x, "models")) for g, x in seen]
    yield from side_by_side(
        [*by_class, *by_model],
        ("joint", setting),
        with_setting("Features of clients' models and of the global model", setting),
        "Each point is a test example as one model sees it: clients whose models agree have their points where the "
        "global model has its own. Distances in a map mean little. Of the features themselves, separation is the share "
        "of variance between classes, and apart the clients' distance from the global model's features, as a share of "
        "their spread.",
        "clients and global model",
    )


def _map(joint: Mapping[str, Any], colours: str) -> Panel:
    """The points of one map, coloured by class or by model; the global model is drawn last."""
    axes = Axis("t-SNE direction 1 (no unit)"), Axis("t-SNE direction 2 (no unit)")
    points, models, classes = _without_unknown(
        joint["points"], joint["models"], [int(label) for label in joint["labels"]]
    )
    names = ["global model" if client < 0 else f"client {client}" for client in models]
    texts = [f"class {label}, {name}" for label, name in zip(classes, names, strict=True)]
    if colours == "models":
        groups = [GLOBAL_MODEL if client < 0 else CLIENTS for client in models]
        return point_panel(axes, points, texts, groups, {CLIENTS: "clients' models", GLOBAL_MODEL: "global model"})
    labels = {n: f"class {n}" for n in classes} if len(set(classes)) <= NAMED else {}
    return point_panel(axes, points, texts, classes, labels)


def _without_unknown(points: Sequence[Sequence[float | None]], *others: Sequence[Any]) -> list[list[Any]]:
    """The points whose coordinates are all known, and what belongs to each of them."""
    kept = [n for n, point in enumerate(points) if all(x is not None for x in point)]
    return [[values[n] for n in kept] for values in (points, *others)]


def _views(groups: Sequence[Group], setting: str) -> Iterator[Figure]:
    """Clients of all methods in the same two directions, of the first seed that has them."""
    seen = [(group, views[0]) for group in groups if (views := group.lens("views"))]
    for name in dict.fromkeys(name for _, views in seen for name in views):
        rows = [row for group, views in seen if name in views and (row := _rows(group, views[name]))[1].numel()]
        widths = {x.shape[1] for _, x, _ in rows}
        # Models of other shapes have no directions in common, and one number or one client has no plane.
        if len(widths) == 1 and widths.pop() > 1 and sum(len(x) for _, x, _ in rows) > 1:
            panel, apart = _project(rows)
            yield Figure(
                slug("pca", name, setting),
                with_setting(f"Clients' {name}, all methods in the same directions", setting),
                "Each point is a client and tight clouds are clients that agree; the mean distance from a method's own "
                f"centre, in all directions, is: {apart}.",
                (("", panel),),
                name.partition(" of ")[0],
            )


def _rows(group: Group, view: Sequence[Sequence[float | None]]) -> tuple[Group, Tensor, list[int]]:
    """The rows of the clients all of whose numbers are known, and the numbers of these clients."""
    kept, clients = _without_unknown(view, _clients(group, len(view)))
    return group, torch.tensor(kept), clients


def _project(rows: Sequence[tuple[Group, Tensor, list[int]]]) -> tuple[Panel, str]:
    """All rows projected on their two main directions, and each method's mean distance from its own centre."""
    projection = pca({group.label: x for group, x, _ in rows})
    axes = [Axis(f"direction {n} ({share:.0%} of variance)") for n, share in enumerate(projection.explained, 1)]
    points = [point for group, _, _ in rows for point in projection.points[group.label].tolist()]
    names = [f"{group.label}, client {client}" for group, _, clients in rows for client in clients]
    styles = [group.style for group, own, _ in rows for _ in own]
    apart = ", ".join(f"{label} {value:.3g}" for label, value in projection.spread.items())
    labels = {group.style: group.label for group, _, _ in rows}
    return point_panel((axes[0], axes[1]), points, names, styles, labels), apart


def _clients(group: Group, count: int) -> Sequence[int]:
    """The clients that were measured."""
    clients: list[int] = next(iter(group.lens("clients")), [])
    return clients if len(clients) == count else range(count)


def landscape(material: Material) -> Iterator[Figure]:
    """The loss around each method's global model, on one scale, from above and as a surface."""
    for setting in material.settings:
        groups = material.within(setting)
        log = _needs_log_scale(
            [np.array(x["loss"], dtype=float) for group in groups for x in group.lens("surface")[:1]]
        )
        for kind, view in _KINDS:
            yield from side_by_side(
                [(group.label, _loss(group, kind, log)) for group in groups],
                ("landscape", kind, setting),
                with_setting(f"Loss around the global model, {view}", setting),
                "The model lies in the middle and all methods share one scale: a wide dark basin is a flat minimum, a "
                "narrow one is sharp.",
                view,
            )


def _needs_log_scale(losses: list[Matrix]) -> bool:
    """Whether losses differ so much that only a log scale shows the basins."""
    finite = np.concatenate([x[np.isfinite(x)] for x in losses]) if losses else np.array([])
    return bool(len(finite) and finite.min() > 0 and finite.max() / finite.min() > WIDE)


def _scatter(group: Group, kind: str, key: str, direction: str) -> Panel | None:
    """The points of the first seed that has them; clients are named, labels are coloured."""
    embeddings = group.lens("embedding", kind)
    if not embeddings or not embeddings[0].get("points"):
        return None
    known = embeddings[0].get(key)
    points, names = _without_unknown(embeddings[0]["points"], known or range(len(embeddings[0]["points"])))
    explained = [share for share in embeddings[0].get("explained") or () if share is not None]
    shares = [f"{share:.0%} of variance" for share in explained[:2]]
    first, second = (Axis(f"{direction} {n} ({shares[n - 1] if len(shares) == 2 else 'no unit'})") for n in (1, 2))
    if key != "labels":
        return point_panel((first, second), points, [f"client {name}" for name in names], [group.style] * len(points))
    classes = [int(label) for label in names]
    titles = {n: f"class {n}" for n in classes}
    labels = titles if len(titles) <= NAMED else {}
    return point_panel((first, second), points, [titles[n] for n in classes], classes, labels)


def _loss(group: Group, kind: _Shape, log: bool) -> Panel | None:
    """The landscape of the first seed that has one."""
    surfaces = group.lens("surface")
    if not surfaces:
        return None
    values = np.array(surfaces[0]["loss"], dtype=float)
    values = np.log10(values) if log else values
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    suffix = " direction" if kind == "contour" else ""  # beside a surface there is little space
    unit = "norms of the filters" if surfaces[0].get("directions") == "random" else "weights"
    x, y = Axis(f"first{suffix} ({unit})"), Axis(f"second{suffix} ({unit})")
    scale = "log10 of the loss (mean per example)" if log else "loss (mean per example)"
    low, high = float(finite.min()), float(finite.max())
    return grid_panel(x, y, Grid(surfaces[0]["a"], surfaces[0]["b"], numbers(values.T), scale, low, high, kind))
