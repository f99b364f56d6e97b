"""All randomness of a run: one generator for each seed, round, client and purpose, and the choice of the cohort."""

from hashlib import sha256
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator


def derive(seed: int, *names: int | str) -> int:
    """A 63-bit seed that depends on everything that is named."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, round: int, client: int, purpose: str) -> Generator:
    """The generator of one client in one round for one purpose; never a global one."""
    return torch.Generator().manual_seed(derive(seed, round, client, purpose))


def cohort(seed: int, round: int, population: int, size: int) -> list[int]:
    """The clients of a round, sorted: a fixed number, without replacement. Its cost follows the size.

    Args:
        seed: the run's seed; all methods of a comparison see the same cohorts.
        round: the round.
        population: how many clients there are.
        size: how many take part.
    """
    if not 1 <= size <= population:
        raise ValueError(f"cohort: size must be between 1 and the population of {population}, got {size}")
    return sorted(Random(derive(seed, round, "cohort")).sample(range(population), size))  # noqa: S311


def bernoulli_size(seed: int, round: int, population: int, probability: float) -> int:
    """How many clients take part in a round if each does with the same probability; one at least."""
    if not 0 < probability <= 1:
        raise ValueError(f"bernoulli_cohort: probability must be in (0, 1], got {probability}")
    draw = np.random.default_rng(derive(seed, round, "size"))
    size = 0
    while size == 0:
        size = int(draw.binomial(population, probability))
    return size


def bernoulli_cohort(seed: int, round: int, population: int, probability: float) -> list[int]:
    """The clients of a round, sorted: each with the same probability, at least one. Its cost follows their number."""
    return cohort(seed, round, population, bernoulli_size(seed, round, population, probability))


def weighted_draw(seed: int, round: int, weights: NDArray[np.float64], size: int, purpose: str = "cohort") -> list[int]:
    """Clients drawn one after the other without replacement, each time in proportion to the weights of those left.

    The clients are in the order of their draws; one without weight is never drawn, so there may be fewer. A client's
    draw does not depend on the weights of the others (Efraimidis and Spirakis, 2006): the smallest of E_i / weight_i
    with E_i exponential comes first.

    Args:
        seed: the run's seed.
        round: the round.
        weights: one for each client, 0 or more.
        size: how many to draw.
        purpose: what they are drawn for; each purpose has its own draws.
    """
    drawn = np.random.default_rng(derive(seed, round, purpose)).random(len(weights))
    held = np.flatnonzero(weights > 0)
    keys = -np.log1p(-drawn[held]) / weights[held]
    return [int(client) for client in held[np.argsort(keys, kind="stable")][:size]]
