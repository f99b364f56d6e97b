"""Every hand-checked number of the two sheets for models and states, on their toy problems T2 and Q2."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from support.rounds import close, part_of, path, spy, watch
from undrift.algorithms import fedavg, make
from undrift.blocks import Uniform
from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.records.types import Local
from undrift.testing import Quadratics

T2 = Quadratics.scalar((1, 3), (0, 4), 1.0, (1, 1)), Local(lr=0.1)
Q2 = Quadratics.scalar((1, 1), (0, 4), 1.0, (1, 3)), Local(lr=0.5, epochs=2, batch_size=3)


def evenly(name: str, **arguments: Any) -> Algorithm:
    return replace(make(name, **arguments), aggregation=Uniform())


# Each round: w the model, D the displacements, then server states and, in brackets, both clients' states.
NUMBERS: list[tuple[str, Any, Algorithm, list[dict[str, Any]]]] = [
    ("T2", T2, fedavg(), [{"w": 1.4}, {"w": 1.72}]),
    ("T2", T2, make("uniform"), [{"w": 1.4}, {"w": 1.72}]),
    (
        "T2",
        T2,
        make("scaffold"),
        [
            {"w": 1.4, "D": (-0.1, 0.9), "drift.c": -4, "drift.c[]": (1, -9)},
            {"w": 1.72, "D": (0.36, 0.28), "drift.c": -3.2, "drift.c[]": (1.4, -7.8)},
        ],
    ),
    ("T2", T2, make("feddyn", mu=0.1), [{"w": 1.8}]),
    ("T2", T2, make("fedcm", a=0.1), [{"w": 1.04, "momentum.m": -0.4}]),
    ("T2", T2, make("fedsam", rho=0.1), [{"w": 1.41, "D": (-0.11, 0.93)}, {"w": 1.738}]),
    (
        "T2",
        T2,
        make("mofedsam", a=0.1, rho=0.1),
        [
            {"w": 1.041, "momentum.m": -0.41},
            {"w": 1.11808, "momentum.m": -0.7708},
            {"w": 1.2260904, "momentum.m": -1.080104},
        ],
    ),
    (
        "T2",
        T2,
        make("fedgamma", rho=0.1),
        [
            {"w": 1.41, "drift.c": -4.1, "drift.c[]": (1.1, -9.3)},
            {"w": 1.738, "D": (0.369, 0.287), "drift.c[]": (1.51, -8.07)},
        ],
    ),
    ("T2", T2, make("fedspeed", rho=0.1, mu=0.1), [{"w": 1.82, "D": (-0.11, 0.93), "drift.h[]": (0.011, -0.093)}]),
    ("T2", T2, make("fedlesam", rho=0.1), [{"w": 1.4, "D": (-0.1, 0.9)}, {"w": 1.74, "D": (-0.13, 0.81)}]),
    ("Q2", Q2, fedavg(), [{"w": 2.5, "D": (-0.75, 2.25)}]),
    ("Q2", Q2, make("uniform"), [{"w": 1.75, "D": (-0.75, 2.25)}, {"w": 1.9375}]),
    ("Q2", Q2, make("fedprox", mu=1.0), [{"w": 2.0, "D": (0.5 - 1, 2.5 - 1)}]),
    ("Q2", Q2, evenly("fedprox", mu=1.0), [{"w": 1.5}]),
    (
        "Q2",
        Q2,
        make("scaffold"),
        [
            {"w": 1.75, "drift.c": -0.75, "drift.c[]": (0.75, -2.25)},
            {
                "w": 1.9375,
                "D": (1.5625 - 1.75, 2.3125 - 1.75),
                "drift.c": -0.1875,
                "drift.c[]": (1.6875, -2.0625),
            },
            {"w": 1.984375},
        ],
    ),
    (  # the sheet's duals are in model units: ours are -alpha times these
        "Q2",
        Q2,
        make("feddyn", mu=1.0),
        [
            {"w": 2.0, "D": (0.5 - 1, 2.5 - 1), "drift.h": -0.5, "drift.h[]": (0.5, -1.5)},
            {"w": 2.0, "D": (1.25 - 2, 2.25 - 2), "drift.h": -0.25, "drift.h[]": (1.25, -1.75)},
        ],
    ),
    (
        "Q2",
        Q2,
        make("fedcm", a=0.5),
        [
            {"w": 1.4375, "D": (0.5625 - 1, 2.3125 - 1), "momentum.m": -0.4375},
            {"w": 1.875, "D": (1.0 - 1.4375, 2.75 - 1.4375)},
        ],
    ),
    ("Q2", Q2, evenly("fedavgm", beta=0.9), [{"w": 1.75}, {"w": 2.6125}]),
    ("Q2", Q2, evenly("fedavgm", beta=0.9, nesterov=True), [{"w": 2.425}, {"w": 2.426875}]),
    ("Q2", Q2, evenly("fedavgm", beta=0.9, lr=0.1), [{"w": 1.075}, {"w": 1.211875}]),  # the moving-average form
]


@pytest.mark.parametrize(
    ("name", "problem", "algorithm", "rounds"), NUMBERS, ids=[f"{n}-{a!r}" for n, _, a, _ in NUMBERS]
)
def test_models_and_states(name: str, problem: Any, algorithm: Algorithm, rounds: list[dict[str, Any]]) -> None:
    for frame, expected in zip(watch(algorithm, *problem, len(rounds)), rounds, strict=True):  # type: ignore[call-arg]
        for key, value in expected.items():
            slot, _, field = key.removesuffix("[]").partition(".")
            if key == "w":
                close(frame.w, value)
            elif key == "D":
                close(torch.stack([frame.uploads[i].delta for i in (0, 1)]), value)
            elif key.endswith("[]"):
                close(torch.stack(frame.client(slot, field)), value)
            else:
                close(getattr(part_of(frame.after, slot), field), value)


@pytest.mark.sweep(every=4)
def test_feddyn_with_exact_local_minimisation() -> None:
    # With lr 1/4 the regularised curvatures 2 and 4 contract by 1/2 and 0: sixty steps are exact.
    task = Quadratics.scalar((1, 3), (0, 4), 0.0, (1, 1))
    frames = watch(make("feddyn", mu=1.0), task, Local(lr=0.25, epochs=60), 40)
    for t, x in enumerate([(0, 3), (1.5, 3), (2.25, 3)]):
        close(frames[t].before.params + torch.cat([frames[t].uploads[i].delta for i in (0, 1)]), x)
        close(frames[t].w, 3.0)
    close(torch.cat(frames[0].client("drift", "h")), (0, -3))
    close(part_of(frames[0].after, "drift").h, -1.5)
    for t, frame in enumerate(frames):
        close(torch.cat(frame.client("drift", "h")), (3 * (1 - 0.5**t), -3))
    close(path(fedavg(), task, Local(lr=0.5, epochs=60), 3), (2, 2, 2))


def test_fedspeed_uploads_of_the_paper() -> None:
    (frame,) = watch(make("fedspeed", rho=0.1, mu=0.1), *T2, 1)
    x = 1 + torch.cat([frame.uploads[i].delta for i in (0, 1)])
    close(x, (0.89, 1.93))
    uploads = x - torch.cat(frame.client("drift", "h")) / 0.1
    close(uploads, (0.78, 2.86))
    close(uploads.mean(), frame.w)


def test_fedlesam_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    path(make("fedlesam", rho=0.1), *T2, 2)
    assert [look.offset for look in seen.steps[:2]] == [None, None]
    gradient = (1.4 + 3 * (1.4 - 4)) / 2
    close(gradient, -3.2)
    for look in seen.steps[2:]:
        close(look.offset, 0.1 * gradient / abs(gradient))


@pytest.mark.parametrize(
    ("names", "client", "server", "down", "up", "gradients"),
    [
        (("fedavg", "uniform", "fedprox", "specgrad"), 0, 1, 1, 1, 1),
        (("fedsam", "fedasam", "fedfft"), 0, 1, 1, 1, 2),
        (("fedcm",), 0, 2, 2, 1, 1),
        (("mofedsam",), 0, 2, 2, 1, 2),
        (("scaffold",), 1, 2, 2, 1, 1),
        (("fedgamma", "fedfft-s"), 1, 2, 2, 1, 2),
        (("feddyn",), 1, 2, 1, 1, 1),
        (("fedspeed", "fedfft-d"), 1, 2, 1, 1, 2),
        (("fedlesam",), 1, 1, 1, 1, 1),
        (("fedlesam-s",), 2, 2, 2, 1, 1),
        (("fedlesam-d",), 2, 2, 1, 1, 1),
        (("fedavgm",), 0, 2, 1, 1, 1),
    ],
)
def test_cost_table(names: tuple[str, ...], client: int, server: int, down: int, up: int, gradients: int) -> None:
    for name in names:
        c = cost(make(name))
        found = (c.client_state, c.server_state, c.down, c.up, c.gradients_per_step)
        assert found == (client, server, down, up, gradients), name
        assert c.plain_sum and not c.gathers and c.stateless == (client == 0)
