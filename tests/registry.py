"""One table of every block and filter: good inputs, bad ones with their messages. All contract tests use it."""

from dataclasses import dataclass
from typing import Any

from undrift.block import Block
from undrift.blocks import (
    ASAM,
    SAM,
    Average,
    ByExamples,
    CoordinateMedian,
    FedDyn,
    Filter,
    HeavyBall,
    Private,
    Proximal,
    Scaffold,
    ServerMomentum,
    Spectral,
    StaleGlobal,
    Uniform,
    cap_norm,
    clip_coordinates,
    gaussian,
    high_pass,
    high_pass_2d,
    low_pass,
    moving_average,
    random_stop,
    rescale,
)

BLOCKS: dict[str, list[Block]] = {
    "perturbation": [SAM(0.1), SAM(0.1, blend=0.5), SAM(0.0), ASAM(0.5, 0.1), StaleGlobal(0.2)],
    "drift": [Scaffold(), FedDyn(0.1)],
    "momentum": [ServerMomentum(0.3), ServerMomentum(1.0)],
    "objective": [Proximal(0.1), Proximal(0.0)],
    "aggregation": [ByExamples(), Uniform(), CoordinateMedian()],
    "server_optimizer": [Average(0.7), HeavyBall(0.5), HeavyBall(0.5, 0.5, nesterov=True)],
    "personalization": [Private(("head.*",)), Private(())],
}
"""Slot -> instances to check."""

FILTERS: list[Filter] = [
    high_pass(0.1),
    high_pass(0.0),
    high_pass(0.1, scope="weights"),
    high_pass(0.1, scope=("body.*",)),
    high_pass(0.1, order="2310"),
    high_pass(0.1, order="random:3"),
    high_pass_2d(0.1),
    low_pass(0.1),
    random_stop(0.1),
    moving_average(0.1),
    gaussian(0.1),
    rescale(0.1),
    cap_norm(0.05),
    clip_coordinates(3.0),
]

SPECTRAL = [Spectral(gradient=f) for f in FILTERS] + [Spectral(perturbation=f) for f in FILTERS]


@dataclass(frozen=True)
class Bad:
    """A call that must be refused, and a part of what the refusal says."""

    make: Any
    arguments: tuple[Any, ...]
    message: str
    error: type[Exception] = ValueError


BAD = [
    Bad(SAM, (-0.1,), "SAM: rho must be 0 or more and finite, got -0.1"),
    Bad(SAM, (0.1, 2.0), "SAM: blend must be in"),
    Bad(ASAM, (float("nan"),), "ASAM: rho must be"),
    Bad(ASAM, (0.1, -1.0), "ASAM: eta must be"),
    Bad(StaleGlobal, (float("inf"),), "StaleGlobal: rho must be"),
    Bad(FedDyn, (0.0,), "FedDyn: mu must be positive and finite, got 0.0; without a dual"),
    Bad(ServerMomentum, (0.0,), "ServerMomentum: a must be in (0, 1], got 0.0"),
    Bad(Proximal, (-1.0,), "Proximal: mu must be"),
    Bad(Average, (0.0,), "Average: lr must be"),
    Bad(HeavyBall, (1.0,), "HeavyBall: beta must be in [0, 1), got 1.0"),
    Bad(HeavyBall, (0.9, -1.0), "HeavyBall: lr must be"),
    Bad(Private, ("head",), "Private: names must be a tuple of patterns", TypeError),
    Bad(high_pass, (1.5,), "high_pass: r must be a fraction in [0, 1), got 1.5"),
    Bad(high_pass_2d, (-0.1,), "high_pass_2d: r must be"),
    Bad(low_pass, (float("nan"),), "low_pass: r must be"),
    Bad(random_stop, (1.0,), "random_stop: r must be"),
    Bad(moving_average, (1.0,), "moving_average: r must be"),
    Bad(gaussian, (2.0,), "gaussian: r must be"),
    Bad(rescale, (-1.0,), "rescale: r must be"),
    Bad(cap_norm, (0.0,), "cap_norm: rho must be positive"),
    Bad(clip_coordinates, (0.0,), "clip_coordinates: kappa must be positive"),
    Bad(lambda: high_pass(0.1, scope="some"), (), 'scope must be "all", "weights"'),
    Bad(lambda: high_pass(0.1, order="0122"), (), 'order must be a permutation of "0123"'),
    Bad(Spectral, (0.1,), "Spectral: perturbation must be a filter such as high_pass(0.01)", TypeError),
]
