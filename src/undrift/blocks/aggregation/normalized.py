"""FedNova's normalisation by the reach of each client's local optimizer."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.core.block import Aggregation
from undrift.core.types import Cohort, Run, Upload, Weighted
from undrift.core.vector import Vector


def reach(steps: int, rho: float = 0.0, pull: float = 0.0) -> float:
    """How far a constant unit gradient carries a client, in learning rates: the sum of its impulse response.

    Args:
        steps: local steps; without momentum and pull they are the reach.
        rho: local momentum.
        pull: learning rate times the strength of a proximal term.
    """
    buffer = far = 0.0
    for _ in range(steps):
        buffer = rho * buffer + 1.0
        far += buffer - pull * far
    return far


class Reach(NamedTuple):
    """A client's reach, its examples, and its examples times the steps it counts for."""

    a: float
    examples: float
    work: float


@dataclass(frozen=True)
class Normalized(Aggregation):
    """server:  delta = (sum_i p_i a_i) sum_i p_i delta_i / a_i,  p_i = n_i / sum_j n_j over those that took part

    a_i is the reach of the local optimizer: a <- a + b - lr mu a with b <- rho b + 1, once a step, from zero. With a
    proximal term the first factor is sum_i p_i steps_i.

    Args:
        rho: momentum of the local steps, that of `LocalMomentum`; 0 if there is none.
        mu: strength of a proximal term, that of `Proximal`; 0 if there is none.
    """

    Up = Reach

    rho: float = 0.0
    mu: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 1:
            raise ValueError(f"Normalized: rho must be in [0, 1), got {self.rho}")
        if not 0 <= self.mu < float("inf"):
            raise ValueError(f"Normalized: mu must be 0 or more and finite, got {self.mu}")

    def finish(self, local: None, run: Run) -> tuple[Reach, None]:
        """The reach in this round, at its learning rate."""
        a = reach(run.steps, self.rho, run.lr * self.mu)
        return Reach(a, float(run.examples), run.examples * (float(run.steps) if self.mu else a)), None

    def weigh(self, upload: Upload) -> float:
        """Examples over reach."""
        told = upload.parts["aggregation"]
        assert isinstance(told, Reach)
        return upload.examples / told.a

    def mean(self, sums: Weighted, cohort: Cohort) -> Vector:
        """The mean direction of one step, as long as the mean client goes."""
        whole: Reach = sums.up
        return sums.delta / whole.examples * (whole.work / whole.examples)
