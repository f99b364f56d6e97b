"""Ray equals the reference to the bit, on any number of workers, and survives workers that are killed."""

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from support.devices import needed
from support.local_ray import MARKS, local_ray
from support.lost_states import check_policy_for_lost_states
from support.own_dtypes import Texts
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Algorithm, Local, Simulation, TensorTask, parse
from undrift.algorithms import make
from undrift.blocks import CoordinateMedian
from undrift.core.client.visit import ClientError
from undrift.core.records.rejection import Reason
from undrift.engine.stores.store import MemoryStore
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker_plan import Plan
from undrift.runs import Config, resume, start
from undrift.testing import Clinic, fingerprint
from undrift.testing.device import engine_ratios
from undrift.testing.tasks import clinic

ray = pytest.importorskip("ray")
from undrift.ray import Pool, RayBackend, WorkerError, fitting_pool  # noqa: E402

pytestmark = MARKS
LOCAL = Local(lr=0.05, decay=0.9, weight_decay=1e-3, epochs=1, batch_size=4)
SCHEDULED = replace(LOCAL, decay=1.0, schedule="warmup(2) + cosine(over=4)", step_schedule="cosine")
ALGORITHMS = ["fedavg", "scaffold", "mofedsam", "fedlesam-d", "fedfft-d", "specgrad"]


@pytest.fixture(scope="module")
def started() -> Any:
    with local_ray(__name__, num_cpus=16, num_gpus=2):
        yield


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n} workers")
def pool(request: pytest.FixtureRequest, started: Any) -> Any:
    with Pool(request.param) as pool:
        yield pool


@pytest.mark.sweep(every=12)
@pytest.mark.parametrize("method", ["scaffold + buffered(4)", "krum + buffered(3)"])
def test_schedules_that_overlap(method: str, pool: Pool) -> None:
    common: Any = {"cohort": 5, "seed": 1, "durations": "log-normal(1, sd=2)"}
    expected = Simulation(parse(method), Clinic(), LOCAL, **common).run(4)
    with Simulation(parse(method), Clinic(), LOCAL, backend=RayBackend(pool), **common) as simulation:
        assert fingerprint(simulation.run(4)) == fingerprint(expected)


@pytest.mark.sweep(every=9)
@pytest.mark.parametrize("method", ["local-adamw(moments='average')", "local-adam(moments='keep')", "scaffold"])
def test_optimizers_and_schedules(method: str, pool: Pool) -> None:
    algorithm = parse(method)
    expected = Simulation(algorithm, Clinic(), SCHEDULED, cohort=5, seed=1).run(3)
    with Simulation(algorithm, Clinic(), SCHEDULED, cohort=5, seed=1, backend=RayBackend(pool, chunk=2)) as simulation:
        assert fingerprint(simulation.run(3)) == fingerprint(expected)


@pytest.mark.sweep(every=6)
def test_unequal_work_and_a_selection_by_losses(pool: Pool) -> None:
    algorithm = parse("scaffold + power-of-choice(6)")
    local = replace(LOCAL, epochs="uniform:1-3", deadline=2.0, speed="uniform:0.2-2.0")
    given: dict[str, Any] = {"cohort": 4, "seed": 1, "availability": lambda client, t: (client + t) % 5 > 0}
    expected, reference = list(Simulation(algorithm, Clinic(), local, **given).rounds(3))[-1]
    with Simulation(algorithm, Clinic(), local, **given, backend=RayBackend(pool, chunk=2)) as simulation:
        state, record = list(simulation.rounds(3))[-1]
    assert (record.clients, record.rejections, record.asked) == (
        reference.clients,
        reference.rejections,
        reference.asked,
    )
    assert fingerprint(state) == fingerprint(expected)


@pytest.mark.quick
@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_equals_the_reference_to_the_bit(name: str, pool: Pool) -> None:
    algorithm = make(name)
    for expected, reference in Simulation(algorithm, Clinic(), LOCAL, cohort=5, seed=1).rounds(3):  # noqa: B007
        pass
    with Simulation(algorithm, Clinic(), LOCAL, cohort=5, seed=1, backend=RayBackend(pool, chunk=2)) as simulation:
        state = simulation.start()
        for state, record in simulation.rounds(3, state):  # noqa: B007, B020
            assert len(record.clients) + len(record.rejections) == 5
    assert record.reports == reference.reports
    assert fingerprint(state) == fingerprint(expected)


NEWEST = (
    *("fedlc", "fedrs", "fedntd", "fedvls", "fedetf", "fedloge", "feddecorr", "feduv", "fedexp", "fedacg", "fednsam"),
    *("fedinit", "scaffold-m", "scaffnew", "fedlin", "fedswa", "fedmoswa", "fedadamw", "fedlada", "fedmuon"),
    *("fedmuon-cv", "fedpac-muon", "fedpac-soap", "delta-sgd", "fedgps", "fedbabu", "fedrod", "fedpac", "fedas"),
    *("pfedfda", "whitened"),
)


@pytest.mark.sweep(every=len(NEWEST))
@pytest.mark.parametrize("name", NEWEST)
def test_the_newest_methods_equal_the_reference(name: str, pool: Pool) -> None:
    """Of all clients, as some methods need it, with the model that a method needs."""
    algorithm = make(name)
    task, local = clinic(algorithm), replace(LOCAL, decay=1.0, weight_decay=0.0)
    expected = Simulation(algorithm, task, local, seed=1).run(2)
    with Simulation(algorithm, task, local, seed=1, backend=RayBackend(pool, chunk=2)) as simulation:
        assert fingerprint(simulation.run(2)) == fingerprint(expected)


@pytest.mark.sweep(every=6)
def test_a_gathering_rule_equals_the_reference(pool: Pool) -> None:
    algorithm = Algorithm(aggregation=CoordinateMedian())
    expected = Simulation(algorithm, Clinic(), LOCAL, cohort=5).run(2)
    with Simulation(algorithm, Clinic(), LOCAL, cohort=5, backend=RayBackend(pool, chunk=1)) as simulation:
        assert fingerprint(simulation.run(2)) == fingerprint(expected)


@dataclass(frozen=True)
class Slow(Clinic):
    """Takes its time, so that a worker can be killed while it trains."""

    def loss(self, model: Any, batch: Any) -> Any:
        time.sleep(0.05)
        return super().loss(model, batch)


@pytest.mark.sweep(every=4)
def test_a_killed_worker_is_restarted_and_its_clients_count_once(started: Any) -> None:
    algorithm = make("scaffold")
    expected = Simulation(algorithm, Clinic(), LOCAL, seed=2).run(3)
    with Pool(2) as pool, Simulation(algorithm, Slow(), LOCAL, seed=2, backend=RayBackend(pool, chunk=2)) as simulation:
        victims = pool.pids()
        state = simulation.start()
        killer = threading.Timer(0.3, os.kill, (victims[0], signal.SIGKILL))
        killer.start()
        for state, record in simulation.rounds(3, state):  # noqa: B007, B020
            assert sorted(record.clients) == [0, 2, 3, 4, 5, 6, 7]
        killer.join()
        assert victims[0] not in pool.pids()
    assert fingerprint(state) == fingerprint(expected)


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_workers_killed_at_random_rounds_cost_no_client(started: Any, kills: int) -> None:
    """R3: every client counts once in every round, and the model has the bits of a run without kills."""
    draw, rounds = random.Random(kills), 3 * kills
    fatal = set(draw.sample(range(rounds), kills))
    expected = Simulation(make("scaffold"), Clinic(), LOCAL, cohort=5, seed=4).run(rounds)
    with (
        Pool(2) as pool,
        Simulation(make("scaffold"), Slow(), LOCAL, cohort=5, seed=4, backend=RayBackend(pool, chunk=1)) as simulation,
    ):
        state, killed, tasks, trained = simulation.start(), 0, 0, 0
        for number in range(rounds):
            if number in fatal:
                ready = pool.crew.ready() or [0]
                victim = pool.pid(pool.actors[draw.choice(ready)])
                killer = threading.Timer(draw.uniform(0.0, 0.3), os.kill, (victim, signal.SIGKILL))
                killer.start()
                killed += 1
            state, record = simulation.round(state)
            empty = [r for r in record.rejections if r.reason is Reason.EMPTY]
            assert len(set(record.clients)) == len(record.clients)
            tasks, trained = tasks + 5 - len(empty), trained + len(record.clients)
    print(f"{killed} kills, {trained} of {tasks} client tasks")
    assert killed == kills and trained == tasks
    assert fingerprint(state) == fingerprint(expected)


@dataclass(frozen=True)
class Deadly(Clinic):
    """A client that ends its worker, every time."""

    def loss(self, model: Any, batch: Any) -> Any:
        if torch.is_grad_enabled():
            os._exit(1)
        return super().loss(model, batch)


@pytest.mark.sweep(every=0)
def test_a_client_that_always_kills_its_worker_ends_the_run(started: Any) -> None:
    with (
        Pool(1) as pool,
        Simulation(make("fedavg"), Deadly(), LOCAL, backend=RayBackend(pool, retries=1)) as simulation,
        pytest.raises(ray.exceptions.RayActorError, match=r"clients 4, .*: their Ray worker died 2 times") as seen,
    ):
        simulation.run(1)
    assert isinstance(seen.value, WorkerError)


@pytest.mark.sweep(every=0)
def test_states_stay_in_the_folder_given(started: Any, tmp_path: Path) -> None:
    algorithm = make("feddyn")
    with Pool(2) as pool:
        with Simulation(algorithm, Clinic(), LOCAL, backend=RayBackend(pool, root=tmp_path)) as simulation:
            stopped = simulation.run(2)
        with Simulation(algorithm, Clinic(), LOCAL, backend=RayBackend(pool, root=tmp_path)) as simulation:
            resumed = simulation.run(2, stopped)
    assert fingerprint(resumed) == fingerprint(Simulation(algorithm, Clinic(), LOCAL).run(4))


@pytest.mark.sweep(every=0)
def test_a_lost_state_sets_its_client_aside_or_ends_the_run(started: Any, tmp_path: Path) -> None:
    with Pool(2) as pool:
        check_policy_for_lost_states(lambda: RayBackend(pool, root=tmp_path), tmp_path)


def half_of(task: object, model: torch.nn.Module, client: int) -> float:
    """A number that depends on every weight of a client's model."""
    return client + float(sum(p.detach().double().sum() for p in model.parameters())) / 2


@pytest.mark.sweep(every=4)
def test_personal_models_are_scored_by_the_workers(pool: Pool) -> None:
    reference = Simulation(make("fedper"), Clinic(), LOCAL, seed=1)
    expected = reference.scores(reference.run(2), range(8), half_of)
    with Simulation(make("fedper"), Clinic(), LOCAL, seed=1, backend=RayBackend(pool, chunk=3)) as simulation:
        found = simulation.scores(simulation.run(2), range(8), half_of)
        assert cast(RayBackend, simulation.backend)._worker is None  # nothing was computed in this process
    assert found == expected and list(found) == list(range(8))


@pytest.mark.sweep(every=4)
def test_chunks_are_balanced_and_complete(pool: Pool) -> None:
    with Simulation(make("fedavg"), Clinic(), LOCAL, backend=RayBackend(pool, chunk=3)) as simulation:
        chunks = cast(RayBackend, simulation.backend)._chunks(range(8))
    assert sorted(client for chunk in chunks for client in chunk) == list(range(8))
    loads = [sum(Clinic.sizes[client] for client in chunk) for chunk in chunks]
    assert max(loads) <= max(max(Clinic.sizes), 2 * sum(Clinic.sizes) / len(chunks))


@dataclass(frozen=True)
class Failing(Clinic):
    """A client that cannot read its data."""

    def batches(self, client: Any, size: Any, generator: Any) -> Any:
        if client == 3:
            raise ValueError("the disk is gone")
        return super().batches(client, size, generator)


@pytest.mark.sweep(every=8)
def test_a_client_that_fails_is_rejected_or_raised(started: Any) -> None:
    with Pool(1) as pool, Simulation(make("scaffold"), Failing(), LOCAL, backend=RayBackend(pool)) as simulation:
        state, record = next(simulation.rounds(1))
        (failed,) = [r for r in record.rejections if r.reason is Reason.FAILED]
        assert failed.client == 3 and failed.detail == "round 1, client 3, step 0: the disk is gone"
        with pytest.raises(ClientError, match=r"client 3, step 0: the disk is gone \(every client"):
            simulation.round(simulation.start(), [3])
        simulation.failures = "raise"
        with pytest.raises(ClientError, match=r"client 3, step 0: the disk is gone \(1 of 7 clients failed"):
            simulation.run(1)
    other = Simulation(make("scaffold"), Clinic(), LOCAL)
    assert fingerprint(state) == fingerprint(other.round(other.start(), [0, 2, 4, 5, 6, 7])[0])


@pytest.mark.sweep(every=0)
def test_probability_and_clients_own_models_on_workers_of_its_own(started: Any) -> None:
    reference = Simulation(make("fedrep"), Clinic(), LOCAL, probability=0.5, seed=3)
    with Simulation(make("fedrep"), Clinic(), LOCAL, probability=0.5, seed=3, backend=RayBackend()) as simulation:
        state = simulation.run(3)
        assert fingerprint(state) == fingerprint(reference.run(3))
        for client in range(8):
            own, expected = (each.personal(state, client).state_dict() for each in (simulation, reference))
            assert all(torch.equal(x, expected[name]) for name, x in own.items())
        backend = cast(RayBackend, simulation.backend)
        pids, states = backend.pool.pids(), backend.states
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids) and not states.exists()


@pytest.mark.sweep(every=4)
def test_options_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Pool: workers must be 1 or more, got 0"):
        Pool(0)
    with pytest.raises(ValueError, match="RayBackend: chunk must be 1 or more clients, or None, got 0"):
        RayBackend(chunk=0)
    with pytest.raises(ValueError, match="RayBackend: retries must be 0 or more, got -1"):
        RayBackend(retries=-1)
    with pytest.raises(ValueError, match="RayBackend: wait must be a number of seconds, 0 or more, got -1"):
        RayBackend(wait=-1)
    with pytest.raises(ValueError, match="RayBackend: states on the nodes' own disks were removed, got node:/var/lib"):
        RayBackend(root="node:/var/lib/undrift/run")
    with pytest.raises(ValueError, match="RayBackend: memory://states/run: memory is seen by one process only"):
        RayBackend(root="memory://states/run")
    with pytest.raises(TypeError, match=r"RayBackend keeps .* on disk: give root= the path .*, got MemoryStore"):
        RayBackend(root=MemoryStore())  # type: ignore[arg-type]


@pytest.mark.sweep(every=0)
def test_a_run_on_any_workers_has_one_hash(started: Any, tiny: Any, tmp_path: Path) -> None:  # noqa: F811
    def settings(rounds: int, **engine: object) -> Config:
        return Config.build({**RUN, "method": "scaffold", "rounds": rounds, "engine": engine})

    local = start(settings(3), tmp_path / "local")
    start(settings(1, name="ray", workers=2), tmp_path / "two")
    start(settings(2, name="ray", workers=1), tmp_path / "one")
    on_two, elsewhere = resume(tmp_path / "two", rounds=3), resume(tmp_path / "one", rounds=3, name="local")
    assert {on_two.sha256, elsewhere.sha256} == {local.sha256}


@pytest.mark.sweep(every=0)
@needed
def test_workers_on_a_device_have_the_cpus_bits(
    started: Any,
    tiny: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNDRIFT_DEVICE_MODULE", "support.pretend")
    algorithm, given = make("scaffold"), dict[str, Any](cohort=5, seed=1)
    expected = Simulation(algorithm, Clinic(), LOCAL, **given).run(2)
    with (
        Pool(2) as pool,
        Simulation(algorithm, Clinic(), LOCAL, **given, device="pretend", backend=RayBackend(pool)) as simulation,
    ):
        assert fingerprint(simulation.run(2)) == fingerprint(expected)
    engine = {"name": "ray", "workers": "auto", "device": "pretend"}
    local = start(Config.build({**RUN, "rounds": 1}), tmp_path / "local")
    there = start(Config.build({**RUN, "rounds": 1, "engine": engine}), tmp_path / "there")
    assert there.sha256 == local.sha256
    noted = json.loads((tmp_path / "there" / "engine.json").read_text())
    assert (noted["device"], noted["name"], noted["plan"]["device"]) == ("pretend", "ray", "pretend")
    assert noted["probe"]["seconds"] > 0 and 1 <= noted["plan"]["workers"] <= 4 and noted["plan"]["reason"]


@pytest.mark.sweep(every=0)
def test_every_worker_has_its_share_of_a_gpu(started: Any) -> None:
    with Pool(4, gpus=0.5) as pool:
        assert Counter(pool.assigned()) == {"0": 2, "1": 2}
        refused = r"RayBackend: gpus=0.5: the run is on device cpu, .*; set device to cuda, or leave gpus out"
        with pytest.raises(ValueError, match=refused):
            Simulation(make("fedavg"), Clinic(), backend=RayBackend(pool))
    with pytest.raises(ValueError, match=r"Pool: 3 workers with gpus=1 need 3 GPUs and Ray has 2: set workers to 2"):
        Pool(3, gpus=1.0)
    with pytest.raises(ValueError, match=r"Pool: gpus must be a worker's share of one GPU, from 0 to 1, got 2"):
        Pool(1, gpus=2.0)


@pytest.mark.sweep(every=0)
def test_a_pool_that_fits_and_what_ray_costs(started: Any) -> None:
    job = Job(make("fedavg"), Clinic(), LOCAL)
    with fitting_pool(job, cohort=1) as pool:
        assert len(pool.actors) == 1
    assert engine_ratios(job, Plan("cpu", 1), rounds=1)["ray_over_local"] > 0


@pytest.mark.sweep(every=0)
def test_models_with_buffers_of_every_dtype_and_bfloat16_weights(started: Any) -> None:
    ray.cloudpickle.register_pickle_by_value(sys.modules["support.own_dtypes"])
    given: dict[str, Any] = {"local": replace(LOCAL, precision="bf16"), "cohort": 4, "seed": 1}
    expected = Simulation("scaffold", Texts(), **given).run(2)
    with Pool(2) as pool, Simulation("scaffold", Texts(), **given, backend=RayBackend(pool)) as simulation:
        assert fingerprint(simulation.run(2)) == fingerprint(expected)


@pytest.mark.sweep(every=3)
def test_clients_trained_together_in_any_groups(pool: Pool) -> None:
    inputs = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
    owners = torch.split(torch.arange(90), [20, 3, 7, 20, 9, 11, 20])
    task = TensorTask(lambda: torch.nn.Linear(5, 3), inputs, (inputs[:, 0] > 0).long(), owners)
    given: dict[str, Any] = {"local": replace(LOCAL, together=3), "cohort": 5, "seed": 2}
    expected = Simulation("scaffold", task, **given).run(2)
    with Simulation("scaffold", task, **given, backend=RayBackend(pool)) as simulation:
        assert fingerprint(simulation.run(2)) == fingerprint(expected)
