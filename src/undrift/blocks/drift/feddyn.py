"""FedDyn's duals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch

from undrift.core import Correction, End, LocalOptimizer, ServerView, Step, Sums, Vector
from undrift.util.naming.ranges import Range, positive


class Dual(NamedTuple):
    """A dual variable: at convergence a client's own gradient."""

    h: Vector


@dataclass(frozen=True)
class FedDyn(Correction[Dual, Dual]):
    """client:  g <- g - h_i + mu (w - w0);   at the end h_i <- h_i - mu delta_i
    server:  h <- h - mu/N sum_i delta_i;     delta <- delta - h/mu

    Args:
        mu: strength of the proximal term, FedDyn's alpha; it cannot be 0.
    """

    uses = Sums.DISPLACEMENTS
    vectorises = True
    reports = ("client_norm", "server_norm")

    mu: Annotated[float, Range("positive and finite", positive, "; without a dual use no drift block")] = 0.1

    def refuses(self, others: Mapping[str, object]) -> str:
        """Weight decay that is not part of the loss."""
        optimizer = others["local_optimizer"]
        if not isinstance(optimizer, LocalOptimizer) or not optimizer.decoupled:
            return ""
        return (
            f"needs weight decay in the gradient, found {optimizer!r}: a dual is the gradient of a client's loss at "
            "its minimum, and decoupled decay belongs to no loss; LocalAdam has it in the gradient"
        )

    def adjust(self, grad: Vector, state: Dual, step: Step) -> Vector:
        """The gradient of the dynamically regularised loss."""
        return step.pull(grad.sub_(state.h), self.mu)

    def finish(self, state: Dual, end: End) -> tuple[None, Dual]:
        """The dual step."""
        h = state.h - self.mu * end.delta
        end.report("client_norm", torch.linalg.vector_norm(h))
        return None, Dual(h)

    def receive(self, delta: Vector, up: None, view: ServerView[Dual]) -> tuple[Vector, Dual]:
        """The mean of all clients' duals, those that stayed away included; the displacement less the dual's part."""
        h = view.state.h - self.mu / view.population * view.displacements
        view.report("server_norm", float(torch.linalg.vector_norm(h)))
        # The new model is the mean of the clients' models, which begin where each of them started.
        moved = delta if view.lag is None else delta + view.lag
        return moved - h / self.mu, Dual(h)
