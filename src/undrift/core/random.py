"""All randomness of a run: one generator for each seed, round, client and purpose, and the choice of the cohort."""

from hashlib import sha256
from random import Random

import numpy as np
import torch
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


def bernoulli_cohort(seed: int, round: int, population: int, probability: float) -> list[int]:
    """The clients of a round, sorted: each with the same probability, at least one. Its cost follows their number."""
    if not 0 < probability <= 1:
        raise ValueError(f"bernoulli_cohort: probability must be in (0, 1], got {probability}")
    draw = np.random.default_rng(derive(seed, round, "size"))
    size = 0
    while size == 0:
        size = int(draw.binomial(population, probability))
    return cohort(seed, round, population, size)
