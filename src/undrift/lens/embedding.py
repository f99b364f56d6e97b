"""Clients' vectors and features as points in a plane: PCA, and t-SNE for features."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from undrift.core.model.flat_model import Layout
from undrift.lens.spectrum import Vectors, rows


@dataclass(frozen=True, eq=False)
class Embedding:
    """Points of one or several groups (methods) on the same axes.

    Args:
        points: group -> its points, one row each.
        explained: the share of all variance that each axis shows.
        spread: group -> the mean distance of its points from their own centroid, in the full space.
    """

    points: Mapping[str, Tensor]
    explained: tuple[float, ...]
    spread: Mapping[str, float]

    def as_dict(self) -> dict[str, float]:
        """The numbers: explained variance and spread."""
        shares = {f"explained/{i}": share for i, share in enumerate(self.explained)}
        return {**shares, **{f"spread/{group}": value for group, value in self.spread.items()}}


def pca(groups: Mapping[str, Vectors], components: int = 2) -> Embedding:
    """Principal components of several groups together: centred jointly, on the same axes.

    The groups are methods, for example, and a row is a client's perturbation, its class means of features, or its
    parameters. Pictures mislead: `spread` compares the groups in the full space.

    Args:
        groups: group -> rows.
        components: how many axes.
    """
    parts = {name: rows(f"pca, group {name!r}", vectors).double() for name, vectors in groups.items()}
    widths = {name: part.shape[1] for name, part in parts.items()}
    if len(set(widths.values())) != 1:
        raise ValueError(f"pca: all groups must have rows of one length, got {widths}")
    stacked = torch.cat(list(parts.values()))
    _axes(components, min(stacked.shape))
    centred = stacked - stacked.mean(dim=0)
    if len(centred) <= centred.shape[1]:
        points, explained = pca_of_gram(centred @ centred.T, components)
    else:
        values, vectors = _leading(centred.T @ centred, components)
        points, explained = _upright(centred @ vectors), _shares(values, centred.square().sum())
    split = torch.split(points, [len(part) for part in parts.values()])
    apart = {name: part - part.mean(dim=0) for name, part in parts.items()}
    spread = {name: float(torch.linalg.vector_norm(x, dim=1).mean()) for name, x in apart.items()}
    return Embedding(dict(zip(parts, split, strict=True)), explained, spread)


def pca_of_gram(gram: Tensor, components: int = 2) -> tuple[Tensor, tuple[float, ...]]:
    """Principal components from inner products alone, for vectors that came as a stream.

    Args:
        gram: the inner product of every pair of vectors; it is centred here.
        components: how many axes.

    Returns:
        one row of coordinates per vector, and the share of variance of each axis.
    """
    _axes(components, len(gram))
    if not bool(gram.isfinite().all()):
        raise ValueError("pca_of_gram: an inner product is not finite; leave out vectors that have nan or infinity")
    gram = gram.double()
    centred = gram - gram.mean(dim=0) - gram.mean(dim=1, keepdim=True) + gram.mean()
    values, vectors = _leading(centred, components)
    return _upright(vectors * values.sqrt()), _shares(values, centred.diagonal().sum())


def _axes(components: int, largest: int) -> None:
    """Reject a number of axes that the data do not have."""
    if not 1 <= components <= largest:
        raise ValueError(f"pca: components must be between 1 and {largest}, got {components}")


def _leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of a symmetric matrix, clipped at zero, and their vectors as columns."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.flip(0)[:count].clamp(min=0), vectors.flip(1)[:, :count]


def _upright(points: Tensor) -> Tensor:
    """The same points with the sign of each axis fixed: its farthest point lies on the positive side."""
    farthest = points.gather(0, points.abs().argmax(dim=0, keepdim=True))
    return points * torch.where(farthest < 0, -1.0, 1.0)


def _shares(values: Tensor, total: Tensor) -> tuple[float, ...]:
    """Variances as shares of their total; zero if the total is zero."""
    return tuple((values / total).tolist()) if total > 0 else (0.0,) * len(values)


def tsne(features: Tensor, *, perplexity: float = 30.0, seed: int = 0) -> Tensor:
    """A t-SNE map of features, two coordinates per row, the same at every call. Distances in it mean little.

    Rows that are all the same are one point, the origin.

    Args:
        features: one row per sample.
        perplexity: roughly the number of neighbours considered; it must be smaller than the number of rows.
        seed: of the optimisation.
    """
    matrix = rows("tsne", features, least=2)
    if not 0 < perplexity < len(matrix):
        raise ValueError(f"tsne: perplexity must be positive and below the {len(matrix)} rows, got {perplexity}")
    try:
        manifold = import_module("sklearn.manifold")
    except ImportError as error:
        raise ImportError("tsne needs scikit-learn: pip install 'undrift[analysis]'") from error
    made = manifold.TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed)
    points = _rescale(matrix.double())
    if not bool((points != points[0]).any()):  # no directions: scikit-learn would divide by zero
        return torch.zeros(len(points), 2)
    return torch.from_numpy(made.fit_transform(points.numpy()))


def _rescale(matrix: Tensor) -> Tensor:
    """Rows with two columns at least, of a size that single precision holds; a map does not depend on the size."""
    apart = matrix - matrix.mean(dim=0)
    largest = float(apart.abs().max())
    if largest > 0 and not 1e-12 < largest < 1e12:
        matrix = apart / largest
    return torch.nn.functional.pad(matrix, (0, 1)) if matrix.shape[1] == 1 else matrix


def tensor_rows(vectors: Vectors, layout: Layout, name: str) -> Tensor:
    """One tensor of every client's vector, flattened: `conv1.weight` of perturbations or parameters."""
    if name not in layout.names:
        raise ValueError(f"tensor_rows: no tensor is named {name!r}; there are {', '.join(layout.names)}")
    matrix = rows("tensor_rows", vectors, layout)
    return torch.split(matrix, list(layout.sizes), dim=1)[layout.names.index(name)]


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean feature of each class, concatenated into one vector; zero for a class without samples.

    Args:
        features: one row per sample.
        labels: the class of each sample.
        classes: how many classes there are.
    """
    if features.dim() != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"class_means: one label per row of features, got {tuple(labels.shape)} for {tuple(features.shape)}"
        )
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, labels, features.double())
    counts = torch.bincount(labels, minlength=classes).clamp(min=1)
    return (sums / counts.unsqueeze(1)).flatten()


def class_separation(features: Tensor, labels: Tensor) -> float:
    """The share of the variance of features that lies between classes: 1 if every class is one point, 0 if all agree.

    sum_c n_c ||m_c - m||^2 / sum_j ||x_j - m||^2, with m_c the mean of class c and m that of all rows

    Args:
        features: one row per sample.
        labels: the class of each sample.

    Example:
        >>> round(class_separation(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1])), 4)
        0.9615
    """
    if features.dim() != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"class_separation: one label per row of features, got {tuple(labels.shape)} for {tuple(features.shape)}"
        )
    x = features.double() - features.double().mean(dim=0)
    classes = sorted(set(labels.tolist()))
    means = torch.stack([x[labels == c].mean(dim=0) for c in classes])
    counts = torch.stack([(labels == c).sum() for c in classes])
    total = float(x.square().sum())
    return float((counts * means.square().sum(dim=1)).sum()) / total if total else 0.0
