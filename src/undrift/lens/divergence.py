"""How far clients diverge at one point: per layer, per client and in direction, and in the factors of adapters."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.model.pairs import find_pairs, product_norm
from undrift.lens.spectrum import FILTERED, PLAIN, Vectors, agreement, apply_filter, rows, share_of


@dataclass(frozen=True, eq=False)
class Divergence:
    """How far clients' vectors are from their mean, by layer.

    Args:
        layers: the names of the tensors.
        distance: per layer, the mean over clients of ||F(v_k) - F(mean v)||, F the filter.
        squared: per layer, the mean of the squares.
        norm: per layer, ||F(mean v)||.
        clients: per client, ||F(v_k) - F(mean v)|| over the whole model; for gradients, the gradient drift.
        reading: how to read the numbers.
    """

    layers: tuple[str, ...]
    distance: Tensor
    squared: Tensor
    norm: Tensor
    clients: Tensor
    reading: str = PLAIN

    @property
    def relative(self) -> Tensor:
        """Per layer, the distance divided by the norm of the mean; infinite where clients cancel out."""
        return _relative(self.distance, self.norm)

    def as_dict(self) -> dict[str, float | str]:
        """The whole model's `distance`, `squared` and `relative`, then those of the layers by name."""
        distance, norm = self.clients.mean(), self.norm.square().sum().sqrt()
        whole = {"distance": distance, "squared": self.squared.sum(), "relative": _relative(distance, norm)}
        whole["norm"] = norm
        own = {"distance": self.distance, "squared": self.squared, "relative": self.relative, "norm": self.norm}
        flat: dict[str, float | str] = {name: float(x) for name, x in whole.items()}
        flat |= {f"{x}/{name}": float(v[i]) for i, x in enumerate(self.layers) for name, v in own.items()}
        return {**flat, "reading": self.reading}


def _relative(distance: Tensor, norm: Tensor) -> Tensor:
    """A distance divided by the norm of the mean; zero without a distance."""
    return torch.where(distance == 0, 0.0, distance / norm)


def divergence_by_layer(vectors: Vectors, layout: Layout, *, filter: Filter | None = None, seed: int = 0) -> Divergence:
    """The mean distance of clients from their mean, layer by layer, before or after a filter.

    For an orthogonal projection the distance after the filter is never larger than before, so a decrease proves
    nothing: read `relative` as well.

    Args:
        vectors: one per client, all taken at the same model.
        layout: names and shapes of the tensors.
        filter: if given, it is applied to every vector and to their mean.
        seed: for filters that draw at random.
    """
    matrix = rows("divergence_by_layer", vectors, layout).double()
    mean = apply_filter(filter, matrix.mean(dim=0), layout, -1, seed)
    apart = torch.stack([apply_filter(filter, v, layout, k, seed) for k, v in enumerate(matrix)]) - mean
    squares = torch.stack([x.square().sum(dim=1) for x in torch.split(apart, list(layout.sizes), dim=1)])
    return Divergence(
        layers=layout.names,
        distance=squares.sqrt().mean(dim=1),
        squared=squares.mean(dim=1),
        norm=torch.stack([torch.linalg.vector_norm(x) for x in layout.split(mean)]),
        clients=squares.sum(dim=0).sqrt(),
        reading=PLAIN if filter is None else FILTERED,
    )


def gradient_drift(gradients: Vectors) -> Tensor:
    """Per client, the distance of its gradient from the mean: ||g_k - mean g||."""
    matrix = rows("gradient_drift", gradients).double()
    return (matrix - matrix.mean(dim=0)).square().sum(dim=1).sqrt()


def filtering(vectors: Vectors, layout: Layout, filter: Filter, *, seed: int = 0) -> dict[str, float]:
    """Whether a filter can help here: the agreement of clients in what it keeps and in what it removes.

    The difference is not an artefact: a filter that removes at random leaves both equal on average. `gain` is the
    agreement of what is kept minus that of the whole vector; positive means it removes what clients disagree about.

    Args:
        vectors: one per client, at least two, all taken at the same model.
        layout: names and shapes of the tensors.
        filter: the filter in question.
        seed: for filters that draw at random.
    """
    matrix = rows("filtering", vectors, layout, least=2).double()
    keeps = torch.stack([apply_filter(filter, v, layout, k, seed) for k, v in enumerate(matrix)])
    parts = {"whole": matrix, "kept": keeps, "removed": matrix - keeps}
    energy = {name: x.square().sum(dim=1).mean() for name, x in parts.items()}
    ratio = {name: share_of(x.mean(dim=0).square().sum(), energy[name]) for name, x in parts.items()}
    out = {f"ratio/{name}": float(x) for name, x in ratio.items()}
    # Where no energy is left there is nothing to agree about; a rounding error of the filter counts as none.
    present = {name: not bool(x <= 1e-24 * energy["whole"]) for name, x in energy.items()}
    agree = {name: float(agreement(x, len(matrix))) if present[name] else 0.0 for name, x in ratio.items()}
    out |= {f"agreement/{name}": x for name, x in agree.items()}
    out["energy_removed"] = float(share_of(energy["removed"], energy["whole"]))
    return {**out, "gain": agree["kept"] - agree["whole"]}


@dataclass(frozen=True, eq=False)
class Drift:
    """How far clients moved in a round, by layer; the last entry is the whole model.

    Args:
        layers: the names of the tensors.
        distance: the mean over clients of ||x_i - w||, w the model they received: FedSCAM's client drift.
        scatter: the mean of ||x_i - w'||^2, w' the next global model: what FL-Simulator calls divergence.
        moved: ||w' - w||.
    """

    layers: tuple[str, ...]
    distance: Tensor
    scatter: Tensor
    moved: Tensor

    def as_dict(self) -> dict[str, float]:
        """The whole model's numbers, then those of the layers by name."""
        names = [*(f"{layer}/" for layer in self.layers), ""]
        pairs = {"distance": self.distance, "scatter": self.scatter, "moved": self.moved}
        flat = {f"{prefix}{name}": float(v[i]) for i, prefix in enumerate(names) for name, v in pairs.items()}
        return dict(sorted(flat.items(), key=lambda item: "/" in item[0]))


def client_drift(updates: Vectors, layout: Layout, moved: Vector | None = None) -> Drift:
    """How far clients moved, and how far they ended from the next global model.

    Args:
        updates: each client's displacement from the model it received.
        layout: names and shapes of the tensors.
        moved: the displacement of the global model; None takes the plain mean of the updates.
    """
    matrix = rows("client_drift", updates, layout).double()
    moved = matrix.mean(dim=0) if moved is None else moved.double()
    return Drift(
        layers=layout.names,
        distance=_squares(matrix, layout).sqrt().mean(dim=0),
        scatter=_squares(matrix - moved, layout).mean(dim=0),
        moved=_squares(moved.unsqueeze(0), layout)[0].sqrt(),
    )


def _squares(matrix: Tensor, layout: Layout) -> Tensor:
    """The squared norm of each row in every layer and, in the last column, over the whole model."""
    layers = torch.stack([x.square().sum(dim=1) for x in torch.split(matrix, list(layout.sizes), dim=1)], dim=1)
    return torch.cat([layers, layers.sum(dim=1, keepdim=True)], dim=1)


@dataclass(frozen=True)
class ProductError:
    """The error of one adapter.

    Args:
        layer: its name.
        error: the norm of sum_i p_i B_i A_i - B A, where A and B are the means.
        relative: that over the norm of sum_i p_i B_i A_i; 0 if both are zero.
    """

    layer: str
    error: float
    relative: float


def product_errors(
    layout: Layout, w: Vector, updates: Vectors, weights: Sequence[float] | None = None
) -> list[ProductError]:
    """The product error of every adapter, if the clients' factors were averaged.

    It is the covariance of the factors, sum_i p_i (B_i - B) (A_i - A), and is computed as such: no matrix is as large
    as the layer's weight.

    Args:
        layout: the names and shapes of the model's tensors.
        w: the model the clients started from.
        updates: their displacements, one per row: `client_vectors(run, state, clients, "update")`.
        weights: how much each counts, such as its examples; None counts all alike.
    """
    moves = rows("product_errors", updates).double()
    given = torch.ones(len(moves)) if weights is None else torch.tensor(weights)
    if len(given) != len(moves) or not bool((given >= 0).all()) or not float(given.sum()) > 0:
        raise ValueError(
            f"product_errors: give one weight of 0 or more for each of {len(moves)} clients, got {weights}"
        )
    shares = (given.double() / given.double().sum()).tolist()
    tensors = [layout.split(w.cpu().double() + move) for move in moves.cpu()]
    out = []
    for pair in find_pairs(layout):
        each = [pair.factors(one) for one in tensors]
        mean_b = torch.stack([p * b for p, (b, _) in zip(shares, each, strict=True)]).sum(0)
        mean_a = torch.stack([p * a for p, (_, a) in zip(shares, each, strict=True)]).sum(0)
        roots = [sqrt(p) for p in shares]
        whole, apart = (
            product_norm(
                torch.cat([root * (b - x) for root, (b, _) in zip(roots, each, strict=True)], dim=1),
                torch.cat([root * (a - y) for root, (_, a) in zip(roots, each, strict=True)]),
            )
            for x, y in ((torch.zeros_like(mean_b), torch.zeros_like(mean_a)), (mean_b, mean_a))
        )
        out.append(ProductError(pair.layer, apart, apart / whole if whole else 0.0))
    return out
