"""FedNova's normalisation by the reach of each client's local optimizer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from undrift.blocks.drift.feddyn import FedDyn
from undrift.blocks.momentum.local_momentum import LocalMomentum
from undrift.blocks.objective.proximal import Proximal
from undrift.core import End, LocalOptimizer, ServerView, Summing, Upload, Vector
from undrift.util.naming.ranges import Fraction, NonNegative


def reach(steps: int, rho: float = 0.0, pull: float = 0.0, factor: Callable[[int], float] = lambda _: 1.0) -> float:
    """How far a constant unit gradient carries a client, in learning rates: the sum of its impulse response.

    Args:
        steps: local steps; without momentum and pull they are the reach.
        rho: local momentum.
        pull: learning rate times the strength of a proximal term.
        factor: the factor on the learning rate at a step.
    """
    buffer = far = 0.0
    for step in range(steps):
        buffer = rho * buffer + 1.0
        far += factor(step) * (buffer - pull * far)
    return far


class Reach(NamedTuple):
    """A client's reach, and its examples times the steps it counts for."""

    a: float
    work: float


@dataclass(frozen=True)
class Normalized(Summing[None, None, None, Reach]):
    """server:  delta = (sum_i p_i a_i) sum_i p_i delta_i / a_i,  p_i = n_i / sum_j n_j over those that took part

    a_i is the reach of the local optimizer: a <- a + b - lr mu a with b <- rho b + 1, once a step, from zero; if the
    steps have a schedule, a moves by its factor times that. With a proximal term the first factor is sum_i p_i steps_i,
    each step counted by its factor.

    Args:
        rho: momentum of the local steps, that of `LocalMomentum`; 0 if there is none.
        mu: strength of a proximal term, that of `Proximal`; 0 if there is none.
    """

    scalars = ("examples",)

    rho: Fraction = 0.0
    mu: NonNegative = 0.0

    def refuses(self, others: Mapping[str, object]) -> str:
        """Steps with another optimizer, momentum or proximal term than those whose reach it computes."""
        optimizer = others["local_optimizer"]
        if isinstance(optimizer, LocalOptimizer) and not optimizer.plain:
            return (
                f"needs plain SGD on the clients, found {optimizer!r}: the reach by which it divides is that of SGD, "
                "or of SGD with its own momentum: fednova(rho=0.9)"
            )
        corrections, term = (others["drift"], others["momentum"]), others["objective"]
        if any(isinstance(block, FedDyn) for block in corrections):
            return "does not know the reach of FedDyn's proximal term; use drift:scaffold, or feddyn without fednova"
        rho = next((block.rho for block in corrections if isinstance(block, LocalMomentum) and block.rho), 0)
        mu = term.mu if isinstance(term, Proximal) and term.mu else 0
        if rho != self.rho:
            return (
                f"is for steps with a local momentum of {self.rho}, found {rho}; add local-momentum({self.rho}) "
                f"or write normalized(rho={rho}, mu={self.mu})"
            )
        if mu != self.mu:
            return (
                f"is for steps with a proximal term of {self.mu}, found {mu}; add proximal({self.mu}) or write "
                f"normalized(rho={self.rho}, mu={mu})"
            )
        return ""

    def finish(self, state: None, end: End) -> tuple[Reach, None]:
        """The reach in this round, at its learning rate."""
        a = reach(end.steps, self.rho, end.lr * self.mu, lambda step: end.local.factor(step, end.steps))
        steps = float(end.local.factors(end.steps))
        return Reach(a, end.examples * (steps if self.mu else a)), None

    def weigh(self, upload: Upload, up: Reach, age: int) -> Mapping[str, float]:
        """Examples over reach, and the examples, whose sum the mean needs."""
        return {"": upload.examples / up.a, "examples": float(upload.examples)}

    def check(self, up: Reach, examples: int, weights: Mapping[str, float]) -> None:
        """The examples are those stated; reach and work are positive."""
        if weights["examples"] != examples or not (up.a > 0 and up.work > 0):
            raise ValueError(f"Normalized: {up} cannot be that of {examples} examples")

    def mean(self, up: Reach, view: ServerView[None]) -> Vector:
        """The mean direction of one step, as long as the mean client goes."""
        examples = view.scalar("examples")
        return view.weighted / examples * (up.work / examples)
