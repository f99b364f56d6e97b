"""What a sum of factors lacks: every client adds the product of its factors' displacements, where the base lies."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from undrift.core import End, Needs, Personalization, Release, Vector
from undrift.core.model.pairs import find_pairs, write_pairs


@dataclass(frozen=True)
class CrossProducts(Release):
    """client:  delta_i on the frozen weight W of every adapter <- dB_i dA_i, the displacements of its factors

    Clients do not train W, so that its place in the upload is free. With the mean of these products the server knows
    the mean of all B_i A_i, from sums alone.
    """

    needs = Needs(model="foldable")  # a model with adapters whose base travels

    def refuses(self, others: Mapping[str, object]) -> str:
        """Clients that train the base."""
        own = others["personalization"]
        if isinstance(own, Personalization) and own.needs.model == self.needs.model:
            return ""
        return f"writes where no client may train: needs personalization=Folded(scale), found {own!r}; use fedex-lora"

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """The displacement with the products in it."""
        tensors, values = end.layout.split(delta), dict[int, Tensor]()
        for pair in find_pairs(end.layout):
            if pair.base is not None:
                b, a = pair.factors(tensors)
                values[pair.base] = pair.stored(b @ a)
        return write_pairs(end.layout, delta, values)
