"""What a privacy budget costs before a run: the noise that it needs, and the cohort at which the signal equals it."""

from dataclasses import dataclass
from math import ceil, sqrt

from undrift.privacy.accounting import calibrate_noise, gaussian_epsilon, sampled_epsilon


@dataclass(frozen=True)
class NoisePlan:
    """The noise of a private sum for a budget.

    Args:
        epsilon: the budget.
        delta: the probability that it does not cover.
        rounds: how many rounds are trained.
        probability: with which a client takes part in a round.
        noise: the noise multiplier if clients are drawn with this probability, each on its own.
        noise_fixed: that for cohorts of a fixed size, which are accounted as if every client were in every round.
        signal: the largest ratio of the norms of a round's sum and of its noise: all clients with clipped
            displacements of one direction.
        cohort: how many clients a round needs, drawn with the same probability, for a ratio of 1.
    """

    epsilon: float
    delta: float
    rounds: int
    probability: float
    noise: float
    noise_fixed: float
    signal: float
    cohort: int

    def __str__(self) -> str:
        """Two lines for people."""
        return (
            f"privacy: epsilon {self.epsilon:g} at delta {self.delta:.3g} in {self.rounds:,} rounds needs "
            f"private-sum(c, {self.noise:.3g}) with probability = {self.probability:g}, or "
            f"private-sum(c, {self.noise_fixed:.3g}) with cohorts of a fixed size\n"
            f"signal to noise of a round: {self.signal:.2g} at most; a cohort of {self.cohort:,} clients at the same "
            "probability has 1"
        )


def plan_noise(
    epsilon: float, rounds: int, clients: int, cohort: int, parameters: int, delta: float | None = None
) -> NoisePlan:
    """The noise that a budget needs.

    Args:
        epsilon: the budget.
        rounds: how many rounds are trained.
        clients: how many clients there are.
        cohort: how many take part in a round, on average.
        parameters: of the model.
        delta: the delta; None is clients^-1.1.

    Example:
        >>> plan = plan_noise(8.0, rounds=100, clients=1000, cohort=100, parameters=10_000, delta=1e-4)
        >>> round(plan.noise, 2), round(plan.noise_fixed, 2), plan.cohort
        (0.92, 5.43, 93)
    """
    chosen = clients**-1.1 if delta is None else delta
    if rounds < 1 or not 0 < chosen < 1:
        raise ValueError(f"rounds must be 1 or more and delta above 0 and below 1, got {rounds} and {chosen:g}")
    rate = cohort / clients

    fixed = calibrate_noise(epsilon, lambda noise: gaussian_epsilon(noise, chosen, rounds))
    noise = fixed if rate == 1 else calibrate_noise(epsilon, lambda z: sampled_epsilon(z, rate, chosen, rounds))
    needed = noise * sqrt(parameters)
    return NoisePlan(epsilon, chosen, rounds, rate, noise, fixed, cohort / needed, ceil(needed))
