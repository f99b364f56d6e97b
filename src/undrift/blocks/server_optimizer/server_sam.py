"""FedGloSS's perturbation on the server: clients start where the global loss is thought to be higher."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.blocks.warming import Warming
from undrift.core import ServerOptimizer, ServerView, Vector, unit


class Uphill(NamedTuple):
    """The last pseudo-gradient, uphill, and the round it will shift the model in."""

    g: Vector
    round: int


@dataclass(frozen=True)
class ServerSAM(Warming, ServerOptimizer[Uphill]):
    """server:  broadcast w + rho_t U(g), g = 0 in round 0;   g <- -delta;   w <- w + delta from the unshifted w
             rho_t = first + (rho - first) min(1, t / warmup)

    g is the mean displacement itself, before a drift correction changes it on the server.

    Args:
        rho: the radius once warm; 0 gives a plain step.
        warmup: how many rounds the warm-up takes; 0 switches it off.
        first: the radius of round 0; rho, if that is smaller.
    """

    def shift(self, view: ServerView[Uphill]) -> Vector:
        """The model, moved uphill by the radius of the round."""
        return view.params + self.radius(view.state.round) * unit(view.state.g) if self.rho > 0 else view.params

    def receive(self, delta: Vector, up: None, view: ServerView[Uphill]) -> tuple[Vector, Uphill]:
        """The pseudo-gradient of this round, for the next one."""
        return delta, Uphill(-view.mean, view.round + 1)
