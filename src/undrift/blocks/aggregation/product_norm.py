"""Weights from the size of what clients learned in their adapters, as HetLoRA has them."""

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import NamedTuple

from undrift.blocks.personalization.factors import check_shared
from undrift.core import End, Needs, Summing, Upload
from undrift.core.method.aggregation import Weights
from undrift.core.model.pairs import find_pairs, product_norm


class Size(NamedTuple):
    """The norm of a client's products."""

    norm: float


@dataclass(frozen=True)
class ByProductNorm(Summing[None, None, None, Size]):
    """server:  a_i = |B_i A_i| / sum_j |B_j A_j|, the Frobenius norm over all adapters

    Clients whose products are zero do not count; if all are, the model stays.
    """

    needs = Needs(model="adapted")

    def finish(self, state: None, end: End) -> tuple[Size, None]:
        """The norm of the products, if both factors are shared."""
        check_shared(end)
        tensors = end.layout.split(end.w)
        return Size(sqrt(sum(product_norm(*pair.factors(tensors)) ** 2 for pair in find_pairs(end.layout)))), None

    def weigh(self, upload: Upload, up: Size, age: int) -> float:
        """The norm."""
        return up.norm

    def check(self, up: Size, examples: int, weights: Weights) -> None:
        """A norm is finite and not negative, and the weight itself."""
        if not (isfinite(up.norm) and up.norm >= 0 and abs(up.norm - weights[""]) <= 1e-5 * up.norm):
            raise ValueError(f"a norm of {up.norm:g}, with the weight {weights['']:g}")
