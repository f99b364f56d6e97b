"""Features of a client's examples by class, laid out as a linear head: what FedAS, FedPAC and pFedFDA compare."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.core import Block, Layout, Start, Vector
from undrift.core.method.view import View


class ClassRows(NamedTuple):
    """Zero but in the last module: one row of features per class for its weights, a number per class for its biases."""

    v: Vector


def rows_of(v: Vector, layout: Layout, block: str) -> tuple[Tensor, Tensor]:
    """The rows of a vector and the number of each, as views.

    Args:
        v: a vector as long as the model.
        layout: the model's.
        block: who needs them, for the error.
    """
    *_, rows, numbers = [torch.empty(0)] * 2 + layout.split(v)
    last = layout.layers[-1]
    if (
        "Projection" in layout.owners[-1:]
        or rows.dim() != 2
        or numbers.shape != rows.shape[:1]
        or last.stop - last.start != rows.numel() + len(numbers)
    ):
        raise TypeError(f"{block} needs a model whose last module is linear, with a bias: its input are the features")
    return rows, numbers


def features_at(point: Vector, layer: str, view: View, purpose: str) -> tuple[Tensor, Tensor]:
    """The features of a client's examples in evaluation mode, in double precision on the host, and their classes.

    Args:
        point: the model.
        layer: the name of the features in `seen`.
        view: of the client's visit.
        purpose: gives the order of the examples.
    """
    found = []
    for batch in view.data(purpose):
        view.forward_at(point, batch, evaluate=True)
        found.append((view.seen[layer].detach().flatten(1).cpu().double(), batch[1].cpu()))
    features, labels = zip(*found, strict=True)
    return torch.cat(features), torch.cat(labels)


def sums_by_class(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The sum of the features of each class, one row each, and how many examples it has."""
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums, torch.bincount(labels, minlength=classes).to(features.dtype)


def count_labels(start: Start, block: str) -> Tensor:
    """How many examples of each class a client has; raises without labels.

    Args:
        start: the start of its visit.
        block: the name for the error.
    """
    counts = start.label_counts()
    if counts is None:
        raise TypeError(f"{block} needs labels: whole numbers, the second element of every batch")
    return counts


def refuses_samples(others: Mapping[str, object]) -> str:
    """Why features of single examples do not fit others: a variational model has several per example; "" if they do.

    Args:
        others: the other blocks by slot.
    """
    found = _needs_model("variational", others)
    return f"compares one feature vector per example, the model of {found} gives several; use fedper" if found else ""


def refuses_fixed(others: Mapping[str, object]) -> str:
    """Why heads with a row per class do not fit others: a simplex model has none that trains; "" if they do.

    Args:
        others: the other blocks by slot.
    """
    found = _needs_model("simplex", others)
    return (
        f"combines linear heads with a row per class, the model of {found} has a fixed one; use fedper" if found else ""
    )


def _needs_model(kind: str, others: Mapping[str, object]) -> str:
    """The first of some blocks that needs a kind of model, as slot=Block; "" if none does."""
    found = (f"{x}={type(b).__name__}" for x, b in others.items() if isinstance(b, Block) and b.needs.model == kind)
    return next(found, "")
