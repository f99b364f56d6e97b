"""Flower's simulation as a backend: the same bits, the same policy, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from flwr.app import Context, RecordDict

from support import pretend
from support.flower_grid import StandInGrid
from support.own_dtypes import Texts
from test_backends import Failing
from undrift import Local, Simulation, make, parse
from undrift.core.client.visit import ClientError
from undrift.core.records.rejection import Reason
from undrift.engine.stores.store import MemoryStore
from undrift.flower import FlowerBackend
from undrift.testing import Clinic, clinic, fingerprint

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)


class Flower:
    """Takes the place of Flower's simulation: the ServerApp runs on a grid in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.grids: list[StandInGrid] = []
        self.delay: dict[int, float] = {}
        self.error: Exception | None = None

    def __call__(self, app: Any, nodes: Any, count: Any, backend_config: Any) -> None:
        if self.error is not None:
            raise self.error
        grid = StandInGrid(nodes, count, self.root)
        grid.delay = self.delay
        self.grids.append(grid)
        app(grid, Context(grid.run_id, 1, {}, RecordDict(), {}))


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Flower:
    stand_in = Flower(tmp_path / "unused")
    monkeypatch.setattr("flwr.simulation.run_simulation", stand_in)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    return stand_in


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "undrift-flower"]


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("method", ["scaffold + buffered(4)", "fedbuff(3)", "fedasync", "krum + buffered(4)"])
def test_a_schedule_without_a_barrier_gives_the_same_bits(method: str, flower: Flower) -> None:
    algorithm = parse(method)
    given: dict[str, Any] = {"cohort": 5, "seed": 3, "durations": "log-normal(1, sd=2)"}
    expected = Simulation(algorithm, clinic(algorithm), LOCAL, **given)
    with Simulation(algorithm, clinic(algorithm), LOCAL, **given, backend=FlowerBackend(3)) as simulation:
        assert fingerprint(simulation.run(8)) == fingerprint(expected.run(8))
    assert max(expected.history["age_max"]) > 0


@pytest.mark.quick
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedlaw", "krum", "fedbn"])
@pytest.mark.parametrize("sampling", [{"cohort": 5}, {"probability": 0.5}])
def test_every_option_of_a_simulation_works(name: str, sampling: dict[str, Any], flower: Flower) -> None:
    """Also a rule that judges on the server's data: the server step is the simulation's own."""
    algorithm = make(name)
    expected = Simulation(algorithm, clinic(algorithm), LOCAL, seed=3, **sampling)
    given: dict[str, Any] = {**sampling, "seed": 3, "bound": 100.0, "backend": FlowerBackend(3)}
    with Simulation(algorithm, clinic(algorithm), LOCAL, **given) as simulation:
        state = simulation.run(2)
        assert fingerprint(simulation.run(1, state)) == fingerprint(expected.run(3))
        simulation.personal(state, 4)
        states = cast(FlowerBackend, simulation.backend).states
    assert not ours() and not flower.root.exists() and not states.exists()


def test_buffers_of_every_dtype_and_bfloat16_weights(flower: Flower) -> None:
    given: dict[str, Any] = {"local": replace(LOCAL, precision="bf16"), "cohort": 4, "seed": 1}
    with Simulation("scaffold", Texts(), **given, backend=FlowerBackend(2)) as simulation:
        assert fingerprint(simulation.run(2)) == fingerprint(Simulation("scaffold", Texts(), **given).run(2))


def test_unequal_work_and_a_selection_by_losses(flower: Flower) -> None:
    algorithm = parse("scaffold + power-of-choice(6, batches=2)")
    lists: dict[str, Any] = {"epochs": [1, 2, 0.5, 1, 3, 1, 2, 1], "deadline": 2.0, "speed": "uniform:0.2-2.0"}
    for local in (Local(lr=0.05, batch_size=4, **lists), Local(lr=0.05, batch_size=4, steps=gcd, drop_last=True)):
        expected, reference = list(Simulation(algorithm, Clinic(), local, cohort=4, seed=3).rounds(3))[-1]
        with Simulation(algorithm, Clinic(), local, cohort=4, seed=3, backend=FlowerBackend(3)) as simulation:
            state, record = list(simulation.rounds(3))[-1]
        assert (record.clients, record.rejections) == (reference.clients, reference.rejections)
        assert fingerprint(state) == fingerprint(expected)
    secret = Local(steps=lambda client, t: 1)
    named = pytest.raises(ValueError, match=r"local.steps: a function is stored and sent by its name only")
    with Simulation(make("fedavg"), Clinic(), secret, backend=FlowerBackend(2)) as simulation, named:
        simulation.run(1)
    assert not ours()


def test_states_lie_in_the_folder_given(flower: Flower, tmp_path: Path) -> None:
    folder, algorithm = tmp_path / "a folder of mine", make("feddyn")
    with Simulation(algorithm, Clinic(), LOCAL, depth=2, backend=FlowerBackend(root=folder)) as simulation:
        stopped = simulation.run(2)
    with Simulation(algorithm, Clinic(), LOCAL, depth=2, backend=FlowerBackend(3, root=str(folder))) as simulation:
        resumed = simulation.run(2, stopped)
    assert fingerprint(resumed) == fingerprint(Simulation(algorithm, Clinic(), LOCAL).run(4))
    assert {path.name for path in (folder / "0" / "3").iterdir()} == {"0", "1", "2", "3"}


def test_clients_that_fail_are_rejected_or_raised(flower: Flower) -> None:
    with Simulation(make("fedavg"), Failing(), LOCAL, backend=FlowerBackend(2)) as simulation:
        _, record = next(simulation.rounds(1))
        assert {r.client: r.detail for r in record.rejections if r.reason is Reason.FAILED} == {
            client: f"round 1, client {client}, step 0: the disk is gone" for client in (3, 6)
        }
        simulation.failures = "raise"
        with pytest.raises(ClientError, match=r"client 3, step 0: the disk is gone \(2 of 7 clients failed"):
            simulation.run(1)
        simulation.failures = "reject"
        with pytest.raises(ClientError, match="every client of the round failed, 2 in all"):
            simulation.round(simulation.start(), [3, 6])
        assert simulation.run(1).round == 1  # the backend still works
    assert not ours()


def test_late_clients_are_absent(flower: Flower) -> None:
    flower.delay = {0: 600.0}
    with Simulation(make("fedavg"), Clinic(), LOCAL, backend=FlowerBackend(2, deadline=1.0)) as simulation:
        _, record = next(simulation.rounds(1))
        assert record.clients == (3, 5, 7) and dict(record.absent)[0].endswith("no reply in time")
        with pytest.raises(ClientError, match=r"client 0: node .*: no reply in time \(every client"):
            simulation.round(simulation.start(), [0, 2])


def test_a_worker_that_breaks_ends_the_run(flower: Flower) -> None:
    class Lost(Clinic):
        def examples(self, client: int) -> int:
            raise MemoryError("out of memory")

    lost = pytest.raises(RuntimeError, match=r"a worker of Flower's simulation failed in round 1: .*out of memory")
    with Simulation(make("fedavg"), Lost(), LOCAL, backend=FlowerBackend(2)) as simulation, lost:
        simulation.run(1)
    assert not ours()


def test_an_error_of_flower_reaches_the_caller(flower: Flower) -> None:
    flower.error = ValueError("no room")
    with Simulation(make("fedavg"), Clinic(), LOCAL, backend=FlowerBackend()) as simulation:
        with pytest.raises(RuntimeError, match=r"Flower's simulation has ended: ValueError\('no room'\)") as seen:
            simulation.run(1)
        assert seen.value.__cause__ is flower.error
    assert not ours()


def test_closing_ends_a_round_that_is_under_way(flower: Flower) -> None:
    flower.delay = {0: 600.0, 1: 600.0}
    simulation = Simulation(make("fedavg"), Clinic(), LOCAL, backend=FlowerBackend())
    closer = threading.Timer(1.0, simulation.stop)
    closer.start()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="FlowerBackend was closed during round 1"):
        simulation.run(1)
    assert time.monotonic() - began < 60
    with pytest.raises(RuntimeError, match="FlowerBackend is closed; create a new one"):
        simulation.run(1)
    closer.join()
    assert not ours()


def test_options_that_cannot_work_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="FlowerBackend: workers must be 1 or more, got 0"):
        FlowerBackend(0)
    with pytest.raises(ValueError, match="FlowerBackend: deadline must be a positive number of seconds, got 0"):
        FlowerBackend(deadline=0)
    with pytest.raises(TypeError, match=r"FlowerBackend keeps .* on disk: give root= the path .*, got MemoryStore"):
        FlowerBackend(root=MemoryStore())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"FlowerBackend: seed must fit into 64 bits .*, got 18446744073709551616"):
        Simulation(make("fedavg"), Clinic(), seed=2**64, backend=FlowerBackend())
    with pytest.raises(ValueError, match=r"FlowerBackend: gpus must be a worker's share of one GPU"):
        FlowerBackend(gpus=2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"FlowerBackend: 3 workers with gpus=0.5 need 2 GPUs and Ray has 1"):
        FlowerBackend(3, gpus=0.5)
    with pytest.raises(ValueError, match=r"FlowerBackend: gpus=0.5: the run is on device cpu"):
        Simulation(make("fedavg"), Clinic(), backend=FlowerBackend(2, gpus=0.5))
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    with (
        Simulation(make("fedavg"), Clinic(), backend=FlowerBackend()) as simulation,
        pytest.raises(RuntimeError, match=r"Ray is running in this process.*ray.shutdown\(\) first, or use RayBackend"),
    ):
        simulation.run(1)


SCRIPT = """
import json, sys, threading, time
from dataclasses import dataclass
from pathlib import Path
import torch
from undrift import Local, Simulation, make
from undrift.flower import FlowerBackend
from undrift.testing import Clinic, fingerprint

@dataclass(frozen=True)
class Failing(Clinic):
    def batches(self, client, size, generator):
        if client == 3:
            raise ValueError("the disk is gone")
        return super().batches(client, size, generator)

torch.set_num_threads(1)
local, before, result = Local(lr=0.05, epochs=1, batch_size=4), set(threading.enumerate()), {}
backend = FlowerBackend(3, root=Path(sys.argv[1]))
given = {"probability": 0.5, "seed": 3, "device": sys.argv[2]}
with Simulation(make("scaffold"), Clinic(), local, **given, backend=backend) as simulation:
    state = simulation.run(2)
    result["scaffold"] = fingerprint(simulation.run(1, state))
with Simulation(make("fedavg"), Failing(), local, cohort=5, seed=3, backend=FlowerBackend(2)) as simulation:
    result["cohort"] = simulation.sample(1)
    state, record = simulation.round(simulation.start(), range(8))
    result["fedavg"] = fingerprint(state)
    result["rejected"] = [[r.client, r.reason.name, r.detail] for r in record.rejections]
    simulation.failures = "raise"
    try:
        simulation.round(state, range(8))
    except RuntimeError as error:
        result["raised"] = [type(error).__name__, str(error)]
from support import own_dtypes
from ray import cloudpickle
cloudpickle.register_pickle_by_value(own_dtypes)
with Simulation("scaffold", own_dtypes.Texts(), local, cohort=4, seed=1, backend=FlowerBackend(2)) as simulation:
    result["dtypes"] = fingerprint(simulation.run(2))
deadline = time.monotonic() + 20  # Flower's telemetry has a thread of its own, which ends by itself
while set(threading.enumerate()) - before and time.monotonic() < deadline:
    time.sleep(0.1)
result["threads"] = [thread.name for thread in set(threading.enumerate()) - before]
left_open = Simulation(make("fedavg"), Clinic(), local, backend=FlowerBackend(1))  # a program that forgets to close it
result["left open"] = left_open.run(1).round
print("RESULT", json.dumps(result), flush=True)
"""


@pytest.mark.sweep(every=0)
@pytest.mark.xdist_group("ray")  # shares a worker with test_ray.py
def test_flowers_own_simulation(tmp_path: Path) -> None:
    """Workers on another device have the CPU's bits, too."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    device = {} if pretend.missing else {"UNDRIFT_DEVICE_MODULE": "support.pretend"}
    paths = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "states"), "pretend" if device else "cpu"],
        env={**os.environ, **quiet, **device, "FLWR_HOME": str(tmp_path / "flwr"), "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else's processes
    lines = [line for line in output.splitlines() if line.startswith("RESULT")]
    assert lines, output[-3000:]
    result = json.loads(lines[0].removeprefix("RESULT"))
    scaffold = Simulation(make("scaffold"), Clinic(), LOCAL, probability=0.5, seed=3)
    assert result["scaffold"] == fingerprint(scaffold.run(3))
    fedavg = Simulation(make("fedavg"), Clinic(), LOCAL, cohort=5, seed=3)
    left = [client for client in range(8) if client != 3]
    assert result["fedavg"] == fingerprint(fedavg.round(fedavg.start(), left)[0]) and result["cohort"] == fedavg.sample(
        1
    )
    failed = [3, "FAILED", "round 1, client 3, step 0: the disk is gone"]
    assert result["rejected"] == [[1, "EMPTY", ""], failed]
    kind, message = result["raised"]
    assert kind == "ClientError" and message.startswith("round 2, client 3, step 0: the disk is gone (1 of 7 clients")
    assert result["dtypes"] == fingerprint(Simulation("scaffold", Texts(), LOCAL, cohort=4, seed=1).run(2))
    assert result["threads"] == []
    assert result["left open"] == 1 and process.returncode == 0  # and the program came to its end
