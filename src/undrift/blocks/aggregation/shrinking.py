"""A mean whose layers shrink where clients disagree."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from undrift.blocks.aggregation.rows import mean, norm
from undrift.core import Gathering, ServerView, Upload, Vector
from undrift.util.naming.ranges import NonNegative


@dataclass(frozen=True)
class LayerShrinking(Gathering):
    """server, for the tensors l of each module:  A_l = sum_i n_i delta_il / sum_i n_i
             tau_l = beta times the mean over i of ||delta_il - mean_j delta_jl||, kept in [low, high]
             gamma_l = ||w0_l|| / (||w0_l|| + tau_l ||A_l||), 1 if w0_l is zero;   w_l <- gamma_l (w0_l + A_l)

    Args:
        beta: how much disagreement shrinks.
        low: the smallest tau.
        high: the largest tau; 0 gives ByExamples.
    """

    reports = ("shrink",)

    beta: NonNegative = 0.03
    low: float = 0.01
    high: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high < float("inf"):
            raise ValueError(f"LayerShrinking: 0 <= low <= high is needed, got low {self.low} and high {self.high}")

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """The number of examples, which weighs running statistics, too."""
        return float(upload.examples)

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Average, then shrink layer by layer."""
        moved = mean(uploads, [float(upload.examples) for upload in uploads])
        centre, w0 = mean(uploads, [1.0] * len(uploads)), view.w0.double()
        out, factors = torch.empty_like(moved), list[float]()
        for layer in view.layout.layers:
            spread = sum(norm(upload.delta[layer] - centre[layer]) for upload in uploads) / len(uploads)
            tau = min(max(self.beta * spread, self.low), self.high)
            size = norm(w0[layer])
            gamma = size / (size + tau * norm(moved[layer])) if size > 0 else 1.0
            factors.append(gamma)
            out[layer] = (gamma - 1) * w0[layer] + gamma * moved[layer]
        view.report("shrink", factors)
        return out, None
