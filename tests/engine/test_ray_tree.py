"""A tree of sums on Ray has the bits of the flat sum, for every shape, also if a worker is killed in mid-round."""

import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from support.local_ray import MARKS, local_ray
from undrift import Local, Simulation, parse
from undrift.testing import Clinic, fingerprint

ray = pytest.importorskip("ray")
from undrift.engine.ray_backend.tree import StoredReply, Tree  # noqa: E402
from undrift.ray import Pool, RayBackend  # noqa: E402

pytestmark = MARKS
LOCAL = Local(lr=0.05, decay=0.9, weight_decay=1e-3, epochs=1, batch_size=4)
METHODS = [
    "fedavg",
    "fedprox",
    "scaffold",
    "feddyn",
    "fedsam",
    "fednova",
    "fedcm",
    "fedadam",
    "fedavgm",
    "fedsmoo",
    "mofedsam",
    "fedspeed",
    "fedlesam-d",
    "fedfft",
    "fedfft-d",
    "specgrad",
    "feddc",
    "fedgamma",
    "fedyogi",
    "fedexp",
]


@pytest.fixture(scope="module")
def pool() -> Any:
    with local_ray(__name__, num_cpus=4), Pool(2) as pool:
        yield pool


def merges(backend: RayBackend, simulation: Simulation, rounds: int) -> tuple[str, int]:
    """The hash after some rounds, and how many replies the server merged in the largest."""
    counts, served = [], backend._served

    def counted(*given: Any) -> Any:
        replies = list(served(*given))
        counts.append(len(replies))
        return replies

    backend._served = counted  # type: ignore[assignment, method-assign]
    with simulation:
        return fingerprint(simulation.run(rounds)), max(counts)


@pytest.mark.sweep(every=48)
@pytest.mark.parametrize("fan_in", [2, 3, 8], ids=["depth 3", "depth 2", "depth 1"])
@pytest.mark.parametrize("method", METHODS)
def test_every_shape_has_the_bits_of_one_process(method: str, fan_in: int, pool: Pool) -> None:
    expected = fingerprint(Simulation(method, Clinic(), LOCAL, seed=1).run(2))
    backend = RayBackend(pool, chunk=1, fan_in=fan_in)
    found, most = merges(backend, Simulation(method, Clinic(), LOCAL, seed=1, backend=backend), 2)
    assert found == expected and most <= fan_in


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sweep(every=2)
def test_random_shapes_and_versions(seed: int, pool: Pool) -> None:
    """Clients of several versions of the model are merged apart."""
    draw, common = random.Random(seed), {"cohort": 5, "seed": seed, "durations": "log-normal(1, sd=2)"}
    method = parse("scaffold + buffered(4)")
    expected = Simulation(method, Clinic(), LOCAL, **common).run(3)  # type: ignore[arg-type]
    backend = RayBackend(pool, chunk=draw.randint(1, 3), fan_in=draw.randint(2, 4))
    with Simulation(method, Clinic(), LOCAL, backend=backend, **common) as simulation:  # type: ignore[arg-type]
        assert fingerprint(simulation.run(3)) == fingerprint(expected)


@pytest.mark.sweep(every=3)
def test_methods_that_gather_send_all_to_the_server(pool: Pool) -> None:
    expected = fingerprint(Simulation("krum", Clinic(), LOCAL, seed=1).run(2))
    backend = RayBackend(pool, chunk=1, fan_in=2)
    found, most = merges(backend, Simulation("krum", Clinic(), LOCAL, seed=1, backend=backend), 2)
    assert found == expected and most > 2


@dataclass(frozen=True)
class Slow(Clinic):
    """Takes its time, so that a worker can be killed while it trains."""

    def loss(self, model: Any, batch: Any) -> Any:
        time.sleep(0.05)
        return super().loss(model, batch)


@pytest.mark.sweep(every=2)
def test_a_worker_killed_in_mid_round(pool: Pool) -> None:
    expected = Simulation("scaffold", Clinic(), LOCAL, seed=2).run(3)
    with Simulation("scaffold", Slow(), LOCAL, seed=2, backend=RayBackend(pool, chunk=1, fan_in=2)) as simulation:
        killer = threading.Timer(0.3, os.kill, (pool.pids()[0], signal.SIGKILL))
        killer.start()
        assert fingerprint(simulation.run(3)) == fingerprint(expected)
        killer.join()


@pytest.mark.sweep(every=4)
def test_lost_replies_are_trained_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Simulation("fedavg", Clinic(), LOCAL, seed=2).run(1)

    def lose(tree: Tree, replies: list[StoredReply]) -> list[StoredReply]:
        raise ray.exceptions.ObjectLostError("00" * 28, "node", "the node died")

    monkeypatch.setattr(Tree, "merge", lose)
    with Simulation("fedavg", Clinic(), LOCAL, seed=2, backend=RayBackend(pool, chunk=1, fan_in=2)) as simulation:
        assert fingerprint(simulation.run(1)) == fingerprint(expected)


def test_a_fan_in_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="RayBackend: fan_in"):
        RayBackend(fan_in=1)
