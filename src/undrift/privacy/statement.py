"""The statement of a private run: all that an epsilon means nothing without."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from undrift.blocks.aggregation import Uniform
from undrift.blocks.release.private import PrivateQuantile, PrivateSum
from undrift.blocks.release.shares import PrivateShares
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.defaults import ByExamples
from undrift.core.tasks.participation import Participation
from undrift.privacy.accounting import gaussian_epsilon, sampled_epsilon

PRIVATE_SUMS = (PrivateSum, PrivateQuantile, PrivateShares)
"""The releases whose sums are private, each with a norm `c` that it clips to and a `noise`."""

COVERS = (
    "the model and what the server keeps and sends, against those who see them; not the server itself, nor its rows, "
    "logs and audit files, which have numbers of clients without noise"
)
"""What the guarantee is about."""

COVERS_SERVER = (
    "the sums that the server sees, and all that follows from them, against a server that follows the protocol and "
    "those it colludes with, if so many others as the shares are made for take part"
)
"""What it is about where the noise is in shares."""


@dataclass(frozen=True)
class Statement:
    """What a private run guarantees after some rounds.

    Args:
        unit: what is protected: a client with all its examples, or one example.
        relation: which two populations are hard to tell apart.
        sampling: how clients are drawn, as it is accounted.
        clip: the largest norm of a client's displacement, in PrivateQuantile that of round 0, or of a gradient.
        noise: the standard deviation of the noise on the sum, in units of the clip.
        rounds: how many rounds were trained, in each of which a sum was released.
        delta: the probability that epsilon does not cover; below one over the number of clients, or of examples.
        epsilon: the privacy loss.
        accountant: how epsilon was computed.
        randomness: where the noise comes from.
        covers: what the guarantee is about.
    """

    unit: str
    relation: str
    sampling: str
    clip: float
    noise: float
    rounds: int
    delta: float
    epsilon: float
    accountant: str
    randomness: str = "the run's seed: a simulation; who knows the seed can subtract the noise"
    covers: str = COVERS

    def row(self) -> dict[str, Any]:
        """The statement as a flat record."""
        return asdict(self)


def in_words(record: Mapping[str, Any] | str | None) -> str:
    """A statement as `Statement.row` gives it, in one line; "none" without one.

    Example:
        >>> in_words("none")
        'none'
    """
    if not isinstance(record, Mapping):
        return "none"
    return (
        f"epsilon {record['epsilon']:.3g} at delta {record['delta']:.3g} for a {record['unit']} "
        f"({record['relation']}), clip {record['clip']:g}, noise {record['noise']:g}, {record['rounds']} rounds, "
        f"sampling: {record['sampling']}; "
        f"accountant: {record['accountant']}; noise from {record['randomness']}"
    )


def statement(
    algorithm: Algorithm, participation: Participation, rounds: int, delta: float | None = None
) -> Statement | None:
    """What a run guarantees after some rounds; None if it guarantees nothing.

    Only sampling that is really executed is accounted. Where every client takes part with the same probability, each on
    its own, sampling amplifies privacy; cohorts of a fixed size and clients that are not always available are accounted
    as if every client took part in every round, which is true of any sampling and larger than need be. Where clients
    take turns, each is counted in one round of each turn. A server that sees noisy sums knows who was sampled, so with
    noise in shares sampling does not amplify privacy.

    Args:
        algorithm: the method.
        participation: how the clients of a round are drawn.
        rounds: how many rounds were trained, abandoned ones included.
        delta: the delta; None is population^-1.1.
    """
    release = algorithm.release
    if not isinstance(release, PRIVATE_SUMS) or release.noise == 0:
        return None
    population = participation.task.population
    delta = population**-1.1 if delta is None else delta
    if not 0 < delta < 1 / population and population > 1:
        raise ValueError(f"delta must be above 0 and below 1 / {population} clients, got {delta}")
    rate, turns = participation.probability, release.separation
    covers = COVERS
    if isinstance(release, PrivateShares):
        sampling, relation = "none: every client may take part in every round", "one client's uploads set to zero"
        epsilon, covers = sampled_epsilon(release.noise, 1.0, delta, rounds), COVERS_SERVER
        accountant = "Renyi divergences of sums of discrete Gaussian noise (undrift)"
    elif turns > 1:
        sampling, relation = f"none: every client in one round of {turns}", "one client's uploads set to zero"
        epsilon = gaussian_epsilon(release.noise, delta, -(-rounds // turns))
        accountant = "exact Gaussian, noise correlated by the banded square root (undrift)"
    elif rate is not None and rate < 1 and participation.availability is None and participation.empty:
        sampling, relation = f"Poisson, probability {rate:g}", "one client added or removed"
        epsilon, accountant = sampled_epsilon(release.noise, rate, delta, rounds), "Renyi divergences (undrift)"
    else:
        sampling, relation = "none: every client may take part in every round", "one client's uploads set to zero"
        epsilon, accountant = gaussian_epsilon(release.noise, delta, rounds), "exact Gaussian (undrift)"
    return Statement(
        "client", relation, sampling, release.c, release.noise, rounds, delta, epsilon, accountant, covers=covers
    )


def why_not_private(algorithm: Algorithm) -> str:
    """Why a method cannot have a private sum; "" if it can, with equal weights in place of those by examples.

    Args:
        algorithm: the method.
    """
    rule = Uniform() if type(algorithm.aggregation) is ByExamples else algorithm.aggregation
    try:
        replace(algorithm, release=PrivateSum(), aggregation=rule)
    except TypeError as error:
        return str(error)
    return ""


def rounds_within(
    budget: float, algorithm: Algorithm, participation: Participation, most: int, delta: float | None = None
) -> int:
    """How many rounds, at most `most`, a run may train before its epsilon is above a budget.

    Args:
        budget: the largest epsilon.
        algorithm: the method; one that guarantees nothing is refused.
        participation: how the clients of a round are drawn.
        most: the number of rounds that are planned.
        delta: as in `statement`.
    """
    return fitting_rounds(budget, lambda rounds: statement(algorithm, participation, rounds, delta), most)


def fitting_rounds(budget: float, stated: Callable[[int], Statement | None], most: int) -> int:
    """How many rounds, at most `most`, fit into a budget.

    Args:
        budget: the largest epsilon.
        stated: the statement after some rounds, for example `Simulation.privacy`; None is refused.
        most: the number of rounds that are planned.
    """

    def spent(rounds: int) -> float:
        found = stated(rounds)
        if found is None:
            raise ValueError(
                f"epsilon = {budget:g}: the run guarantees no privacy; add private-sum(c, noise) to the method, or set "
                "local.example_clip and local.example_noise"
            )
        return found.epsilon

    return bisect_right(range(1, most + 1), budget, key=spent)
