"""SOAP that begins from the server's mean factors, with the last global direction in every step."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.blocks.local_optimizer.moments import Held
from undrift.blocks.local_optimizer.soap import LocalSOAP, SoapMoments, eigenbases, factors_length
from undrift.core import Array, End, LocalOptimizer, ServerView, Start, Step, Vector
from undrift.util.naming.ranges import Epsilon, Fraction, Share


class Factors(NamedTuple):
    """The factors of all axes that have one, in a row."""

    x: Array


class KnownFactors(NamedTuple):
    """The mean factors of a cohort, and the last round's mean displacement by its rate, uphill."""

    x: Array
    d: Vector


class _Begun(NamedTuple):
    """The moments as they change, and the direction that is mixed in."""

    held: Held[SoapMoments]
    d: Vector


@dataclass(frozen=True)
class MixedSOAP(LocalOptimizer[KnownFactors, None, KnownFactors, Factors, _Begun]):
    """client:  SOAP from the server's factors L, its steps times 1 - gamma;   with every step besides
             w <- w - lr gamma d/K, K the client's number of steps
    server:  L <- mean_i L_i;   d <- -mean_i delta_i / lr

    SOAP is `LocalSOAP` from m = 0 and v = 0 in every round; its bases are the eigenvectors of the server's factors.
    Where there are none yet, in the first round, the first gradient gives them and moves nothing.

    Args:
        gamma: share of the global direction; 0 switches it off.
        beta1: memory of the gradient.
        beta2: memory of the squares and of the factors.
        eps: what keeps the root away from zero.
        frequency: steps from one change of the bases to the next, within a round.
        largest: longest axis with a factor.
    """

    gamma: Share = 0.5
    beta1: Fraction = 0.95
    beta2: Fraction = 0.95
    eps: Epsilon = 1e-8
    frequency: int = 10
    largest: int = 10_000

    decoupled = True

    def __post_init__(self) -> None:
        self._soap()

    def _soap(self) -> LocalSOAP:
        """The optimizer of a round."""
        return LocalSOAP(self.beta1, self.beta2, self.eps, "reset", self.frequency, self.largest)

    def init_server(self, w: Vector) -> KnownFactors:
        """Nothing is known yet."""
        return KnownFactors(w.new_empty(0), torch.zeros_like(w))

    def send(self, view: ServerView[KnownFactors]) -> KnownFactors:
        """All of it, to every client at every start; factors of zero before the first round."""
        x, d = view.state
        length = factors_length(view.layout, self.largest)
        return view.state if len(x) == length else KnownFactors(d.new_zeros(length), d)

    def begin(self, sent: KnownFactors, kept: None, start: Start) -> _Begun:
        """The server's factors and their eigenvectors, and no mean gradient yet."""
        moments = self._soap().zero(start.w0)
        if bool(sent.x.any()):
            bases = eigenbases(sent.x, start.layout, self.largest)
            moments = moments._replace(factors=sent.x.clone(), bases=bases)
        return _Begun(Held(moments), sent.d)

    def adjust(self, grad: Vector, state: _Begun, step: Step) -> Vector:
        """SOAP's direction and the global one."""
        out = self._soap().adjust(grad, state.held, step).mul_(1 - self.gamma)
        return out.add_(state.d, alpha=self.gamma / step.steps)

    def finish(self, state: _Begun, end: End) -> tuple[Factors, None]:
        """The factors."""
        return Factors(state.held.moments.factors), None

    def receive(self, delta: Vector, up: Factors, view: ServerView[KnownFactors]) -> tuple[Vector, KnownFactors]:
        """The mean of the factors, and the direction of the round."""
        rate = view.setting.local.rate(view.round)
        return delta, KnownFactors(up.x / view.cohort, view.mean / -rate)
