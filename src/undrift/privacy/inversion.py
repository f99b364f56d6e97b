"""Gradient inversion: examples computed back from what a client sends.

Of a linear layer with bias that reads the examples, one example x and one step give dL/dW = s x^T and dL/db = s, so
every row of the upload is x times the entry of its bias, also after a step of any size. Several examples or steps give
sums: a row is then a mean of examples, weighted by s, and one example where no other one has a slope.

For other models, examples are searched whose gradient points where the upload points.

Sources: L. T. Phong et al., "Privacy-preserving deep learning via additively homomorphic encryption", 2017 (the linear
layer); J. Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", 2020 (cosine,
total variation, signs).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from undrift.core.model.flat_model import Vector

RECOVERED = 0.3
"""An example counts as recovered if its error is below this: nine tenths of the squared distance are then explained."""


@dataclass(frozen=True)
class Inversion:
    """How well the examples of a client are recovered from one thing that others see.

    An error is the distance of an example to the nearest reconstruction, in units of its distance to the mean input of
    other clients: 0 is exact, and 1 no better than that mean.

    Args:
        attack: "linear layer" or "search".
        seen: what the attacker sees.
        examples: how many examples the client trained on.
        steps: how many local steps it took.
        best: the smallest error of an example.
        median: the median error.
        recovered: the share of the examples with an error below `RECOVERED`.
    """

    attack: str
    seen: str
    examples: int
    steps: int
    best: float
    median: float
    recovered: float

    def row(self) -> dict[str, Any]:
        """Everything as a flat record for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """One line for people."""
        errors = f"error {self.best:.2g} (best), {self.median:.2g} (median)"
        work = f"examples: {self.examples}, steps: {self.steps}"
        return f"{self.attack} on {self.seen} ({work}): {self.recovered:.0%} recovered, {errors}"


def invert_linear(weight: Tensor, bias: Tensor) -> Tensor:
    """The inputs that the displacement, or the gradient, of a linear layer gives: one for each row, zero for an unused.

    Args:
        weight: that of the weight, a row for each unit.
        bias: that of the bias.

    Example:
        >>> invert_linear(torch.tensor([[2.0, 4.0], [0.0, 0.0]]), torch.tensor([2.0, 0.0])).tolist()
        [[1.0, 2.0], [0.0, 0.0]]
    """
    return torch.where(bias[:, None] != 0, weight / bias[:, None], torch.zeros_like(weight))


def invert_gradient(
    gradient: Callable[[Tensor], Vector],
    target: Vector,
    start: Tensor,
    *,
    low: float,
    high: float,
    iterations: int = 300,
    lr: float = 0.1,
    smooth: float = 0.1,
) -> Tensor:
    """Search inputs whose gradient has the direction of a target: 1 - cosine + smooth * total variation, by signs.

    Args:
        gradient: the gradient of the loss as a function of the inputs, which can be differentiated once more.
        target: the direction.
        start: the first inputs; those with four axes are images, the others have no total variation.
        low: the smallest value of an input.
        high: the largest.
        iterations: how many steps the search takes.
        lr: how far an input moves in one of the first; it falls by 10 after 3/8, 5/8 and 7/8 of them.
        smooth: the weight of the total variation of images.
    """
    x = start.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([x], lr)
    milestones = [iterations * part // 8 for part in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, 0.1)
    for _ in range(iterations):
        distance = 1 - cosine_similarity(gradient(x), target, dim=0)
        if x.dim() == 4:
            distance = distance + smooth * ((x.diff(dim=2)).abs().mean() + (x.diff(dim=3)).abs().mean())
        (slope,) = torch.autograd.grad(distance, x)
        x.grad = slope.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            x.clamp_(low, high)
    return x.detach()


def input_errors(found: Tensor, truth: Tensor, guess: Tensor) -> Tensor:
    """The error of every example: see `Inversion`.

    Args:
        found: the reconstructions.
        truth: the examples.
        guess: a guess at an example without the upload.
    """
    rows, wanted = found.flatten(1).double(), truth.flatten(1).double()
    nearest = torch.cdist(wanted, rows, compute_mode="donot_use_mm_for_euclid_dist").amin(1)
    errors: Tensor = nearest / torch.linalg.vector_norm(wanted - guess.flatten().double(), dim=1).clamp(min=1e-30)
    return errors


def summarise_errors(errors: Tensor, attack: str, seen: str, steps: int) -> Inversion:
    """The errors of a client's examples in a few numbers.

    Args:
        errors: one for each example.
        attack: how it was done.
        seen: what the attacker sees.
        steps: how many local steps the client took.
    """
    share = float((errors < RECOVERED).double().mean())
    return Inversion(attack, seen, len(errors), steps, float(errors.min()), float(errors.median()), share)
