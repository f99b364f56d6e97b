"""Terms against features that collapse: FedDecorr's and FedUV's."""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import softmax

from undrift.blocks.objective.contrast import last_linear
from undrift.core import Objective, Start, Step
from undrift.util.naming.ranges import NonNegative


def correlation(x: Tensor) -> Tensor:
    """The mean of the squared correlations of different columns, over the rows of a batch of two or more.

    Args:
        x: one row of features per example.
    """
    d = x.shape[1]
    x = x - x.mean(dim=0)
    x = x / (x.var(dim=0) + 1e-8).sqrt()
    rho = x.T @ x / (len(x) - 1)
    return (rho.square().sum() - rho.diagonal().square().sum()) / max(1, d * (d - 1))


def crowding(x: Tensor) -> Tensor:
    """The mean of exp(-||x_b - x_b'||^2 / sigma) over pairs of rows; sigma is the median of what is not zero.

    Args:
        x: one row of features per example, two at least.
    """
    i, j = torch.triu_indices(len(x), len(x), offset=1, device=x.device)
    squares = (x[i] - x[j]).square().sum(dim=1)
    known = squares.detach().masked_fill(squares.detach() == 0, float("nan"))
    sigma = known.nanmedian().nan_to_num(nan=1.0)
    return torch.exp(-squares / sigma).mean()


@dataclass(frozen=True)
class _OnFeatures(Objective[None, None, None, None, str]):
    """A term of a batch's features, of two examples at least."""

    def watch(self, layer: str, start: Start) -> str:
        """Note the output of a layer or, without a name, what the last linear layer takes in."""
        return start.tap(layer or last_linear(start.module), inputs=not layer)

    def features_of(self, state: str, step: Step) -> Tensor:
        """The features of the last forward pass, one row per example."""
        x = step.seen.get(state)
        if not isinstance(x, Tensor) or x.dim() < 2:
            raise TypeError(
                f"{type(self).__name__}: features must be a tensor with one row per example, {state} gave "
                f"{type(x).__name__}; name another layer with features="
            )
        return x.flatten(1)


@dataclass(frozen=True)
class Decorrelated(_OnFeatures):
    """client:  loss <- loss + beta mean_{j != k} rho_jk^2, rho the correlations of a batch's features

    A batch of one example has no term.

    Args:
        beta: strength of the term; 0 switches it off.
        features: name of the layer whose output is decorrelated; "" is the input of the last linear layer.
        literal: multiply the term by (B - 1)^2 / B, B the size of the batch, as released code does.
    """

    beta: NonNegative = 6.4
    features: str = ""
    literal: bool = False

    def begin(self, sent: None, kept: None, start: Start) -> str:
        """Watch the features."""
        return self.watch(self.features, start) if self.beta else ""

    def penalty(self, state: str, step: Step) -> Tensor | None:
        """The term at the point where the gradient is taken."""
        if not self.beta:
            return None
        x = self.features_of(state, step)
        if len(x) < 2:
            return None
        factor = (len(x) - 1) ** 2 / len(x) if self.literal else 1.0
        return self.beta * factor * correlation(x)


@dataclass(frozen=True)
class SpreadOut(_OnFeatures):
    """client:  loss <- loss + lam mean_c max(0, C^(-1/2) - std_x softmax(f(x))_c)
                      + mu mean_{x, x'} exp(-||z(x) - z(x')||^2 / sigma)

    z are the features, and sigma is the median of the squared distances in the batch that are not zero, without a
    gradient. A batch of one example has no terms.

    Args:
        lam: strength of the first term, for probabilities that vary as one-hot ones do; 0 switches it off.
        mu: strength of the second term, for features far from each other; 0 switches it off.
        features: name of the layer whose output is spread; "" is the input of the last linear layer.
    """

    lam: NonNegative = 2.5
    mu: NonNegative = 0.5
    features: str = ""

    def begin(self, sent: None, kept: None, start: Start) -> str:
        """Watch the logits and the features."""
        if self.lam:
            start.tap("")
        return self.watch(self.features, start) if self.mu else ""

    def penalty(self, state: str, step: Step) -> Tensor | None:
        """Both terms at the point where the gradient is taken."""
        terms: list[Tensor] = []
        if self.lam and len(logits := step.seen[""]) > 1:
            deviation = (softmax(logits, dim=1).var(dim=0) + 1e-12).sqrt()  # a root has no gradient at zero
            terms.append(self.lam * (1 / sqrt(logits.shape[1]) - deviation).relu().mean())
        if self.mu and len(x := self.features_of(state, step)) > 1:
            terms.append(self.mu * crowding(x))
        return torch.stack(terms).sum() if terms else None
