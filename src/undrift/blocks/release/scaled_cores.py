"""Ravan's release: the cores leave a client multiplied by their scales, which stay."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from undrift.blocks.personalization.factors import reads_steps
from undrift.core import End, Needs, Personalization, Release, Vector
from undrift.core.model.pairs import find_pairs, write_pairs


@dataclass(frozen=True)
class ScaledCores(Release):
    """client:  delta_i on C_h <- s_h C_h - C_h as received;   s_h = 1 again"""

    needs = Needs(model="headed")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Factors that train, and blocks that read the displacement as gradient steps."""
        own = others["personalization"]
        if not (isinstance(own, Personalization) and own.needs.model == self.needs.model):
            return f"multiplies cores whose factors stay: needs personalization=Cores(), found {own!r}; use ravan"
        return reads_steps(others, "multiplies the cores by their scales after training")

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """The displacement to the cores with their scales in them."""
        ours, theirs, values = end.layout.split(end.w), end.layout.split(end.w0), dict[int, Tensor]()
        for pair in find_pairs(end.layout, cores=True):
            assert pair.core is not None and pair.scales is not None
            scales = ours[pair.scales]
            values[pair.core] = scales[:, None, None] * ours[pair.core] - theirs[pair.core]
            values[pair.scales] = scales.new_zeros(len(scales))
        return write_pairs(end.layout, delta, values)
