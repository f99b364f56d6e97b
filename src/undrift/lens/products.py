"""What averaging the factors of adapters loses: the mean of products against the product of means."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch

from undrift.core.model.flat_model import Layout, Vector
from undrift.core.model.pairs import find_pairs, product_norm
from undrift.lens.spectrum import Vectors, rows


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
