"""Training on a device: the CPU's bits, and no more waiting than a plain loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from support import pretend
from support.devices import LOCAL, Small, needed, rounds, task_for, visited
from support.peft_models import LOCAL as PEFT_LOCAL
from support.peft_models import ROUNDS, expected, task_of
from undrift.algorithms import ALGORITHMS, make
from undrift.blocks import Scaffold
from undrift.blocks.spectral import gd, high_pass, lap_d
from undrift.blocks.spectral.filter import Filter
from undrift.compose.grammar import parse
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Objective
from undrift.core.method.view import Step
from undrift.core.model.flat_model import SINGLE, Layout
from undrift.core.records.place import place_of
from undrift.core.records.types import ServerState
from undrift.core.server import step as server
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.core.server.wire import fingerprint
from undrift.data.arrays.dataset import Dataset, Split
from undrift.data.tasks.data_task import DataTask
from undrift.data.tasks.loader_task import LoaderTask
from undrift.engine.round.backend import InProcess
from undrift.engine.round.simulation import Simulation
from undrift.engine.stores.store import MemoryStore
from undrift.testing.watch import guard_hooks

pytestmark = needed

DOUBLES = ["fedavg", "feddyn", "q-fedavg", "fedlw", "feddisco", "norm-clip", "krum", "fedfsa", "fedscam", "fedcr"]
"""Methods whose clients compute in double precision somewhere, and some others."""


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_keeps_the_contract_and_has_the_bits_of_the_cpu(name: str) -> None:
    algorithm = make(name)
    with pretend.counted() as found:
        state = rounds(guard_hooks(algorithm), "pretend")
    assert found["aten.convolution.default"] > 0
    assert fingerprint(state) == fingerprint(rounds(algorithm, "cpu"))


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_step_neither_waits_nor_copies(name: str) -> None:
    short, long = visited(make(name), 6, 8)  # one epoch, so that methods with two phases have both
    assert long["aten.convolution.default"] > short["aten.convolution.default"]
    assert pretend.waits(long) == pretend.waits(short)
    assert long["copy cpu to pretend"] == short["copy cpu to pretend"]


@dataclass(frozen=True)
class Reading(Objective):
    """Reads a number from the device in every step."""

    def adjust(self, grad: Any, state: None, step: Step) -> Any:
        assert float(grad.sum()) < 1e9
        return grad


def test_a_block_that_waits_is_noticed() -> None:
    short, long = visited(Algorithm(objective=Reading()), 2, 8)
    assert pretend.waits(long) == pretend.waits(short) + 6


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device without float64, as MPS is one."""
    monkeypatch.setattr(pretend.device, "single", True)
    SINGLE.add("pretend")
    yield
    SINGLE.discard("pretend")


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("name", DOUBLES)
def test_a_device_without_float64_has_the_same_bits(name: str, single: None) -> None:
    assert not place_of("pretend").exact
    with pytest.raises(TypeError, match="no float64"):
        torch.zeros(2, device="pretend").double()
    assert fingerprint(rounds(make(name), "pretend")) == fingerprint(rounds(make(name), "cpu"))


def test_an_upload_does_not_depend_on_who_trained_before() -> None:
    algorithm, task = make("ditto"), task_for(dropout=0.5, sizes=(6, 6))
    alone, after = (Simulation(algorithm, task, LOCAL, seed=5, device="pretend") for _ in range(2))
    sent = server.send(algorithm, alone.start(), alone.job.setting)
    gate = Gate(algorithm, LOCAL, sent, [0, 1])
    first = alone.worker.visit(1, sent, None, gate)
    pretend.device.manual_seed_all(99)
    before = pretend.device.get_rng_state()
    after.worker.visit(0, sent, None, gate)
    second = after.worker.visit(1, sent, None, gate)
    assert first is not None and second is not None and fingerprint(first) == fingerprint(second)
    assert torch.equal(before, pretend.device.get_rng_state())  # the stream of the process comes back
    on_cpu = Simulation(algorithm, task, LOCAL, seed=5).worker.visit(1, sent, None, gate)
    assert on_cpu is not None and fingerprint(on_cpu) == fingerprint(first)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(
    ("name", "method"), [("roberta", "rolora"), ("llama", "fedex-lora(scale=2.0)"), ("gpt2", "fedsa-lora")]
)
def test_adapters_have_the_bits_of_the_cpu(name: str, method: str) -> None:
    pytest.importorskip("peft")
    found = Simulation(parse(method), task_of(name, method), PEFT_LOCAL, seed=3, device="pretend").run(ROUNDS)
    assert fingerprint(found) == expected(name, method)


def images() -> DataTask:
    """Small images with augmentation and a holdout."""
    draw = torch.Generator().manual_seed(1)

    def split(count: int) -> Split:
        pixels = torch.randint(256, (count, 1, 4, 4), generator=draw, dtype=torch.uint8)
        return Split(pixels, torch.randint(3, (count,), generator=draw))

    data = Dataset("small", "image", split(18), split(10), 3, (0.5,), (0.25,), "Small")
    clients = torch.split(torch.arange(18), [8, 10])
    augment = 'flip(probability=0.3)+crop(padding=1, fill="mean")'
    return DataTask(data, clients, Small, augment, holdout=0.2, reserved=torch.arange(4))


def measured(device: str, resident: float, root: Path) -> tuple[str, Any]:
    """A run on images with states on disk, resumed from bytes, and everything that is evaluated."""
    task, algorithm = images(), make("fedper")

    def simulation() -> Simulation:
        backend = InProcess(root=root / f"{device}-{resident}")
        return Simulation(algorithm, task, LOCAL, seed=5, device=device, resident=resident, backend=backend)

    state = simulation().run(2)
    assert state.params.device.type == "cpu"
    resumed = simulation()
    state = wire.from_bytes(ServerState, algorithm, wire.to_bytes(state), len(state.params))
    state = resumed.run(1, state, evaluate=1)
    module, own = resumed.module(state), resumed.personal(state, 1)
    assert next(module.parameters()).device.type == next(own.parameters()).device.type == device
    found = [task.evaluate(module), task.test(module), task.evaluate_client(own, 1), task.own_score(own, 1)]
    columns = {key: value for key, value in resumed.history.last().items() if "seconds" not in key}
    return fingerprint(state), (*found, columns, task.per_client(module).tolist())


def test_images_states_on_disk_and_evaluation_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    expected = measured("cpu", 0.5, tmp_path)
    for resident in (0.5, 0.0):
        assert measured("pretend", resident, tmp_path) == expected


def test_loaders_and_their_tests_have_the_bits_of_the_cpu() -> None:
    def run(device: str) -> tuple[str, Any]:
        task = task_for(sizes=(4, 5))
        data = [TensorDataset(task.inputs[own], task.targets[own]) for own in task.clients]
        loaders = LoaderTask(Small, data, test=data[0], metrics=["accuracy"])
        simulation = Simulation("fedavg", loaders, LOCAL, seed=5, device=device, failures="raise")
        state = simulation.run(1)
        return fingerprint(state), loaders.evaluate(simulation.module(state))

    assert run("pretend") == run("cpu")


def test_candidates_are_chosen_by_the_losses_of_the_cpu() -> None:
    found = []
    for device in ("cpu", "pretend"):
        simulation = Simulation("fedavg", task_for(), LOCAL, cohort=2, seed=5, device=device)
        sent = server.send(simulation.job.algorithm, simulation.start(), simulation.job.setting)
        found.append(simulation.worker.losses(sent, [0, 1, 2], {}, None))
    assert found[0] == found[1]


def test_states_at_rest_are_on_the_host() -> None:
    algorithm = Algorithm(drift=Scaffold())
    simulation = Simulation(algorithm, task_for(sizes=(3, 4)), LOCAL, seed=5, device="pretend")
    state, _ = simulation.round(simulation.start())
    store = simulation.worker.store
    assert isinstance(store, MemoryStore)
    kept = store.load(0, 0).parts["drift"]
    held = state.parts["drift"]
    assert kept is not None and held is not None
    assert {x.device.type for x in (*kept, *held, state.params)} == {"cpu"}


FILTERS = [high_pass(0.05), high_pass(0.01), high_pass(0.05, order="random:1"), lap_d(25), gd(7.5)]


@pytest.mark.parametrize("chosen", FILTERS, ids=str)
def test_filters_agree_with_the_cpu(chosen: Filter) -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    layout = Layout(("weight",), ((5000,),))
    expected, found = chosen(x, layout), chosen(x.to("pretend"), layout).cpu()
    assert float((found - expected).norm() / x.norm()) < 2e-6
