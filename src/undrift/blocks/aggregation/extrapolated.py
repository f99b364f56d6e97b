"""FedExP's extrapolation: the more the clients' displacements differ, the further the server goes along their mean."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from undrift.core import ServerView, Summing, Upload, Vector
from undrift.core.model.flat_model import double
from undrift.util.naming.ranges import AboveZero


@dataclass(frozen=True)
class Extrapolated(Summing):
    """server:  delta = eta mean_i delta_i,  eta = max(1, mean_i ||delta_i||^2 / (2 (||mean_i delta_i||^2 + eps)))

    The mean of the squares is one more sum, of a number of each upload.

    Args:
        eps: what limits eta where the mean vanishes; infinity gives eta = 1.
        by_examples: both means by examples instead of equally.
    """

    scalars = ("square",)
    reports = ("eta",)

    eps: AboveZero = 1e-3
    by_examples: bool = False

    def weigh(self, upload: Upload, up: None, age: int) -> Mapping[str, float]:
        """One or the number of examples, and as often the square of the displacement's norm."""
        weight = float(upload.examples) if self.by_examples else 1.0
        return {"": weight, "square": weight * float(double(upload.delta).square().sum())}

    def check(self, up: None, examples: int, weights: Mapping[str, float]) -> None:
        """A square is 0 or more."""
        if weights["square"] < 0:
            raise ValueError(f"Extrapolated: a sum of squares must be 0 or more, got {weights['square']}")

    def mean(self, up: None, view: ServerView[None]) -> Vector:
        """The mean, extrapolated."""
        weight = view.weight or 1.0
        mean = view.weighted.div_(weight)
        eta = max(1.0, view.scalar("square") / weight / (2 * (float(torch.sum(mean * mean)) + self.eps)))
        view.report("eta", eta)
        return mean.mul_(eta)
