"""Adam and AdamW on the clients."""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch

from undrift.blocks.local_optimizer.moments import Held, WithMoments
from undrift.core import Step, Vector
from undrift.util.naming.ranges import Epsilon, Fraction


class AdamMoments(NamedTuple):
    """Moving averages of the gradient and its square from zero on, and the sums of their weights, 1 - beta^t."""

    m: Vector
    v: Vector
    m_weight: float
    v_weight: float


@dataclass(frozen=True)
class LocalAdam(WithMoments[AdamMoments]):
    """client:  m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) g^2
             w <- w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), element by element, t steps so far

    As `torch.optim.Adam`: g includes corrections, proximal terms and weight decay. The divisors 1 - beta^t are kept as
    the sums of the averages' weights, c <- beta c + 1 - beta: so the mean of clients with different numbers of steps
    has the right ones, too.

    Args:
        beta1: memory of the gradient; 0 switches its average off.
        beta2: memory of the squares; 0 with beta1 = 0 gives steps of lr g / (|g| + eps).
        eps: what keeps the root away from zero; a large one gives SGD with the rate lr / eps.
        moments: "reset", "keep" or "average": m, v and t are zero when a round begins, stay with the client, or are the
            means of what the last cohort uploaded.
    """

    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    eps: Epsilon = 1e-8
    moments: str = "reset"

    def zero(self, w: Vector) -> AdamMoments:
        """No average yet."""
        return AdamMoments(torch.zeros_like(w), torch.zeros_like(w), 0.0, 0.0)

    def adjust(self, grad: Vector, state: Held[AdamMoments], step: Step) -> Vector:
        """The mean gradient over the root of the mean square."""
        m, v, m_weight, v_weight = state.moments
        m.mul_(self.beta1).add_(grad, alpha=1 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        m_weight = self.beta1 * m_weight + (1 - self.beta1)
        v_weight = self.beta2 * v_weight + (1 - self.beta2)
        state.moments = AdamMoments(m, v, m_weight, v_weight)
        return (m / m_weight).div_((v.sqrt() / sqrt(v_weight)).add_(self.eps))


@dataclass(frozen=True)
class LocalAdamW(LocalAdam):
    """client:  as LocalAdam without weight decay in g;   w <- w - lr weight_decay w with every step, decoupled from it

    Args:
        beta1: memory of the gradient; 0 switches its average off.
        beta2: memory of the squares; 0 with beta1 = 0 gives steps of lr g / (|g| + eps).
        eps: what keeps the root away from zero.
        moments: "reset", "keep" or "average": m, v and t are zero when a round begins, stay with the client, or are the
            means of what the last cohort uploaded.
    """

    decoupled = True
