"""What a user of Ray reads when something is wrong: the address, the object store, the task, a score, a number."""

import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from support.local_ray import MARKS, local_ray
from undrift import Local, Simulation
from undrift.algorithms import make
from undrift.core.client.visit import ClientError
from undrift.testing import Clinic

ray = pytest.importorskip("ray")
from ray.exceptions import ObjectStoreFullError  # noqa: E402

from undrift.engine.ray_backend import backend  # noqa: E402
from undrift.engine.ray_backend import start as ray_start  # noqa: E402
from undrift.engine.ray_backend.start import check_address, check_same_cluster  # noqa: E402
from undrift.ray import Pool, RayBackend  # noqa: E402

pytestmark = MARKS
LOCAL = Local(lr=0.05, epochs=1, batch_size=4)


@pytest.fixture(scope="module")
def started() -> Any:
    with local_ray(__name__, num_cpus=4):
        yield


@pytest.fixture(scope="module")
def pool(started: Any) -> Any:
    with Pool(2) as pool:
        yield pool


def no_test(task: Any, model: Any, client: Any) -> None:
    raise KeyError("f1")


@dataclass(frozen=True)
class Locked(Clinic):
    """A task with a lock, which cannot be sent."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lock", threading.Lock())


@pytest.mark.sweep(every=4)
def test_errors_are_those_of_one_process_and_name_their_subject(pool: Pool) -> None:
    with Simulation(make("fedavg"), Clinic(), LOCAL, backend=RayBackend(pool)) as simulation:
        state = simulation.run(1)
        with pytest.raises(
            ClientError, match=r"^client \d: the score of its personal model after round 1 failed: KeyErr"
        ):
            simulation.scores(state, [2, 3], no_test)  # type: ignore[arg-type]
        lock = threading.Lock()
        with pytest.raises(
            TypeError, match=r"the score function cannot be sent to the workers: cannot pickle '_thread"
        ):
            simulation.scores(state, [2, 3], lambda task, model, client: float(lock.locked()))
    with (
        Simulation(make("fedavg"), Locked(), LOCAL, backend=RayBackend(pool)) as simulation,
        pytest.raises(
            TypeError, match=r"RayBackend: the task cannot be sent to the workers: cannot pickle '_thread.lock'"
        ),
    ):
        simulation.run(1)


@pytest.mark.sweep(every=3)
def test_the_address_of_another_cluster_is_refused(started: Any) -> None:
    with pytest.raises(
        ValueError, match=r"address 10.0.0.1:6379: Ray runs in this process already, on the cluster .*:\d+;"
    ):
        Pool(1, address="10.0.0.1:6379")
    joined = ray.get_runtime_context().gcs_address
    with Pool(1, address=joined) as pool:
        assert not pool.here
    check_same_cluster(f"localhost:{joined.rpartition(':')[2]}", f"127.0.0.1:{joined.rpartition(':')[2]}")


def test_an_address_where_nobody_listens_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_address(f"127.0.0.1:{port}")
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match=rf"address 127.0.0.1:{port}: no Ray cluster can be reached there; see"):
        check_address(f"127.0.0.1:{port}")
    assert time.monotonic() - begun < 30
    for wrong in ("127.0.0.1", "host:", ":x"):
        with pytest.raises(ValueError, match=r'address must be "host:port", "ray://host:port" or "auto"'):
            check_address(wrong)
    for left in (None, "auto", "ray://10.0.0.1:10001"):
        check_address(left)


@pytest.mark.sweep(every=2)
def test_states_of_clients_need_a_place_that_all_nodes_share(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "count_nodes", lambda: 3)
    monkeypatch.setattr(pool, "here", False)
    with (
        Simulation(make("scaffold"), Clinic(), LOCAL, backend=RayBackend(pool)) as simulation,
        pytest.raises(
            ValueError, match=r"a temporary folder is not shared by the 3 nodes of the cluster; give root= a"
        ),
    ):
        simulation.run(1)
    with Simulation(make("fedavg"), Clinic(), LOCAL, backend=RayBackend(pool)) as simulation:
        simulation.run(1)  # nothing is kept


def test_an_object_store_that_is_full_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any) -> None:
        raise ObjectStoreFullError("Failed to put object in object store because it is full.\nMore")

    monkeypatch.setattr(ray_start.ray, "put", full)
    with pytest.raises(
        MemoryError, match=r"the task does not fit into Ray's object store: Failed .*object_store_memory="
    ):
        ray_start.put("the task", 1)


@pytest.mark.parametrize("wrong", [{"chunk": 2.5}, {"chunk": True}, {"retries": 1.5}, {"retries": None}])
def test_numbers_of_a_backend_are_whole(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(TypeError, match=f"RayBackend: {name} must be a whole number"):
        RayBackend(**wrong)
    with pytest.raises(TypeError, match=r"Pool: workers must be a whole number of 1 or more, got 1\.5"):
        Pool(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Pool: threads must be 1 or more, got 0"):
        Pool(1, threads=0)
    with pytest.raises(ValueError, match="RayBackend: wait must be a number of seconds, 0 or more, got 'long'"):
        RayBackend(wait="long")  # type: ignore[arg-type]
