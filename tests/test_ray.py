"""Ray equals the reference to the bit, on any number of workers, and survives workers that are killed."""

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass

import pytest
import torch

from experiment_support import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import make
from undrift.blocks import CoordinateMedian
from undrift.experiment import Config, resume, start
from undrift.testing import Clinic, fingerprint

ray = pytest.importorskip("ray")
from undrift.engine.ray import Pool, RaySimulation  # noqa: E402

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LOCAL = Local(lr=0.05, decay=0.9, weight_decay=1e-3, epochs=1, batch_size=4)
ALGORITHMS = ["fedavg", "scaffold", "mofedsam", "fedlesam-d", "fedfft-d", "specgrad"]


@pytest.fixture(scope="module")
def started():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n} workers")
def pool(request, started):
    with Pool(request.param) as pool:
        yield pool


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equals_the_reference_to_the_bit(name: str, pool: Pool) -> None:
    algorithm = make(name)
    expected = Simulation(algorithm, Clinic(), LOCAL, cohort=5, seed=1).run(3)
    with RaySimulation(algorithm, Clinic(), LOCAL, cohort=5, seed=1, pool=pool, chunk=2) as simulation:
        state = simulation.start()
        for state, record in simulation.rounds(3, state):  # noqa: B007, B020
            assert len(record.clients) + len(record.rejections) == 5
    assert fingerprint(state) == fingerprint(expected)


def test_a_gathering_rule_equals_the_reference(pool: Pool) -> None:
    algorithm = Algorithm(aggregation=CoordinateMedian())
    expected = Simulation(algorithm, Clinic(), LOCAL, cohort=5).run(2)
    with RaySimulation(algorithm, Clinic(), LOCAL, cohort=5, pool=pool, chunk=1) as simulation:
        assert fingerprint(simulation.run(2)) == fingerprint(expected)


@dataclass(frozen=True)
class Slow(Clinic):
    """Takes its time, so that a worker can be killed while it trains."""

    def loss(self, model, batch):
        time.sleep(0.05)
        return super().loss(model, batch)


def test_a_killed_worker_is_restarted_and_its_clients_count_once(started) -> None:
    algorithm = make("scaffold")
    expected = Simulation(algorithm, Clinic(), LOCAL, seed=2).run(3)
    with Pool(2) as pool, RaySimulation(algorithm, Slow(), LOCAL, seed=2, pool=pool, chunk=2) as simulation:
        victims = pool.pids()
        state = simulation.start()
        killer = threading.Timer(0.3, os.kill, (victims[0], signal.SIGKILL))
        killer.start()
        for state, record in simulation.rounds(3, state):  # noqa: B007, B020
            assert sorted(record.clients) == [0, 2, 3, 4, 5, 6, 7]
        killer.join()
        assert victims[0] not in pool.pids()
    assert fingerprint(state) == fingerprint(expected)


@dataclass(frozen=True)
class Deadly(Clinic):
    """A client that ends its worker, every time."""

    def loss(self, model, batch):
        if torch.is_grad_enabled():
            os._exit(1)
        return super().loss(model, batch)


def test_a_client_that_always_kills_its_worker_ends_the_run(started) -> None:
    with (
        Pool(1) as pool,
        RaySimulation(make("fedavg"), Deadly(), LOCAL, pool=pool, retries=1) as simulation,
        pytest.raises(ray.exceptions.RayActorError),
    ):
        simulation.run(1)


def test_states_stay_in_the_folder_given(started, tmp_path) -> None:
    algorithm = make("feddyn")
    with Pool(2) as pool:
        with RaySimulation(algorithm, Clinic(), LOCAL, pool=pool, root=tmp_path) as simulation:
            stopped = simulation.run(2)
        with RaySimulation(algorithm, Clinic(), LOCAL, pool=pool, root=tmp_path) as simulation:
            resumed = simulation.run(2, stopped)
    assert fingerprint(resumed) == fingerprint(Simulation(algorithm, Clinic(), LOCAL).run(4))


def test_chunks_are_balanced_and_complete(pool: Pool) -> None:
    with RaySimulation(make("fedavg"), Clinic(), LOCAL, pool=pool, chunk=3) as simulation:
        chunks = simulation._chunks(range(8))
    assert sorted(client for chunk in chunks for client in chunk) == list(range(8))
    loads = [sum(Clinic.sizes[client] for client in chunk) for chunk in chunks]
    assert max(loads) <= max(max(Clinic.sizes), 2 * sum(Clinic.sizes) / len(chunks))


def test_no_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="workers must be 1 or more, got 0"):
        Pool(0)


def test_a_run_on_any_workers_has_one_hash(started, tiny, tmp_path) -> None:  # noqa: F811
    def settings(rounds: int, **engine: object) -> Config:
        return Config.build({**RUN, "method": "scaffold", "rounds": rounds, "engine": engine})

    local = start(settings(3), tmp_path / "local")
    start(settings(1, name="ray", workers=2), tmp_path / "two")
    start(settings(2, name="ray", workers=1), tmp_path / "one")
    on_two, elsewhere = resume(tmp_path / "two", rounds=3), resume(tmp_path / "one", rounds=3, name="local")
    assert {on_two.sha256, elsewhere.sha256} == {local.sha256}
