"""FedDyn's duals."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core.method.block import Correction, Needs
from undrift.core.method.view import End, Step
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Cohort, Summed


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

    uses = frozenset({"sum"})
    vectorises = True
    reports = ("client_norm", "server_norm")

    mu: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.mu < float("inf"):
            raise ValueError(
                f"FedDyn: mu must be positive and finite, got {self.mu}; without a dual use no drift block"
            )

    @property
    def needs(self) -> Needs:
        """Weight decay that is part of the loss."""
        return Needs(
            coupled_decay="a dual is the gradient of a client's loss at its minimum, and decoupled decay belongs to no "
            "loss; LocalAdam has it in the gradient"
        )

    def init_server(self, w: Vector) -> Dual:
        """Zero."""
        return Dual(torch.zeros_like(w))

    def init_client(self, w: Vector) -> Dual:
        """Zero."""
        return Dual(torch.zeros_like(w))

    def correct(self, grad: Vector, state: Dual, step: Step) -> Vector:
        """The gradient of the dynamically regularised loss."""
        return grad.sub_(state.h).add_(step.w - step.w0, alpha=self.mu)

    def finish(self, state: Dual, end: End) -> tuple[None, Dual]:
        """The dual step."""
        return None, Dual(state.h - self.mu * end.delta)

    def report(self, state: Dual, up: None, kept: Dual, end: End) -> dict[str, float]:
        """The norm of the client's new dual."""
        return {"client_norm": float(torch.linalg.vector_norm(kept.h))}

    def receive(self, server: Dual, total: Summed, up: None, cohort: Cohort) -> Dual:
        """The mean of all clients' duals, those that stayed away included."""
        assert total.sum is not None
        return Dual(server.h - self.mu / cohort.population * total.sum)

    def settle(self, delta: Vector, server: Dual) -> Vector:
        """The mean displacement, less the dual's part."""
        return delta - server.h / self.mu

    def report_server(self, server: Dual, cohort: Cohort) -> dict[str, float]:
        """The norm of the mean dual."""
        return {"server_norm": float(torch.linalg.vector_norm(server.h))}
