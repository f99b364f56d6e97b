"""All randomness of a run: one generator for each seed, round, client and purpose, and the choice of the cohort."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

SERVER = -1
"""The server's number in place of a client's."""

Streams = tuple[Tensor, ...]
"""The state of the CPU's global random stream and, if there is another device, of that device's own."""


def derive(seed: int, *names: int | str) -> int:
    """A 63-bit seed that depends on everything that is named."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, round: int, client: int, purpose: str) -> Generator:
    """The generator of one client in one round for one purpose; never a global one."""
    return torch.Generator().manual_seed(derive(seed, round, client, purpose))


def streams(device: torch.device) -> Streams:
    """The states of the global random streams that a model on a device draws from: the CPU's and the device's."""
    if device.type == "cpu":
        return (torch.get_rng_state(),)
    module = torch.get_device_module(device)
    return torch.get_rng_state(), module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)


def set_streams(device: torch.device, states: Streams) -> None:
    """Set the streams of a device to what `streams` returned."""
    torch.set_rng_state(states[0])
    if device.type != "cpu":
        module = torch.get_device_module(device)
        module.set_rng_state(*states[1:]) if device.type == "mps" else module.set_rng_state(states[1], device)


def seed_streams(device: torch.device, seed: int) -> None:
    """Seed the streams of a device; only between `streams` and `set_streams`, as `seeded` does."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        module: Any = torch.get_device_module(device)
        with module.device(device) if hasattr(module, "device") else nullcontext():
            module.manual_seed(seed)


@contextmanager
def with_seed(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the streams of a device for a while; their states come back.

    Args:
        device: where the model is.
        seed: of all its streams.
    """
    with torch.random.fork_rng(devices=[]):
        before = streams(device)
        seed_streams(device, seed)
        try:
            yield
        finally:
            set_streams(device, before)


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


def bernoulli_size(seed: int, round: int, population: int, probability: float, empty: bool = False) -> int:
    """How many clients take part in a round if each does with the same probability; one at least, unless `empty`."""
    draw = np.random.default_rng(derive(seed, round, "size"))
    if empty:
        return int(draw.binomial(population, probability))
    for _ in range(_DRAWS):
        size = int(draw.binomial(population, probability))
        if size:
            return size
    return _one_at_least(draw.random(), population, probability)


_DRAWS = 1000  # of which one is above 0 almost surely, unless the probability is tiny


def _one_at_least(place: float, population: int, probability: float) -> int:
    """The size at a place in [0, 1) of the binomial distribution of sizes above 0."""
    size, odds = 1, probability / (1 - probability)
    share = population * probability * (1 - probability) ** (population - 1)
    share /= -np.expm1(population * np.log1p(-probability))
    while place >= share and size < population and share > 0:
        place -= share
        share *= (population - size) / (size + 1) * odds
        size += 1
    return size


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
