"""FedACG's start ahead: clients train from where the server's momentum will have moved the model."""

from dataclasses import dataclass

from undrift.blocks.server_optimizer.heavy_ball import Velocity
from undrift.core import ServerOptimizer, ServerView, Vector
from undrift.util.naming.ranges import Fraction


@dataclass(frozen=True)
class Ahead(ServerOptimizer[Velocity]):
    """server:  broadcast w - lam v;   v <- lam v - delta;   w <- w - v

    The displacement is measured from the model that was broadcast, and so is every client's proximal term.

    Args:
        lam: share of the momentum that is kept, and added ahead; 0 gives a plain step.
    """

    lam: Fraction = 0.85

    def shift(self, view: ServerView[Velocity]) -> Vector:
        """Where the momentum alone would take the model, against which v points."""
        return view.params - self.lam * view.state.v if self.lam else view.params

    def receive(self, delta: Vector, up: None, view: ServerView[Velocity]) -> tuple[Vector, Velocity]:
        """Accumulate, then move."""
        v = self.lam * view.state.v - delta
        return -v, Velocity(v)
