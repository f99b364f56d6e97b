"""Names of devices, what is refused, deterministic kernels, and the visit that is measured."""

import os
from typing import Any

import pytest
import torch

from support.devices import needed
from undrift import Simulation, make
from undrift.blocks import lap_d
from undrift.engine.worker import device as engine_device
from undrift.engine.worker.device import (
    Memory,
    check_name,
    check_share,
    kind_of,
    memory,
    peak_memory,
    plug_in,
    resolve,
    synchronize,
    title,
    use_deterministic,
)
from undrift.engine.worker.job import Job
from undrift.engine.worker.measure import probe_visit
from undrift.engine.worker.worker_plan import check_shares, choose_workers
from undrift.testing import Clinic, fingerprint
from undrift.testing.rounds import LOCAL

BUILT = torch.version.cuda is not None or torch.version.hip is not None


class Gpus:
    """Takes the place of `torch.cuda` on a machine with two GPUs."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 2

    @staticmethod
    def get_device_name(device: torch.device) -> str:
        return f"GPU {device.index}"

    @staticmethod
    def mem_get_info(device: torch.device) -> tuple[int, int]:
        return 6_000, 8_000


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = engine_device._module
    monkeypatch.setattr(engine_device, "_module", lambda kind: Gpus if kind == "cuda" else plain(kind))


def test_auto_is_the_best_device_there_is(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("auto") == "cuda" and resolve("cuda:1") == "cuda:1" and kind_of("cuda:1") == "cuda"
    assert [x.name for x in engine_device.devices()][:3] == ["cpu", "cuda:0", "cuda:1"]
    assert title("cuda:1") == "GPU 1" and memory("cuda:1") == Memory(8_000, 6_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(ValueError, match=r"device cuda:2: there is no number 2 with CUDA_VISIBLE_DEVICES=4,5, only 2"):
        resolve("cuda:2")


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert resolve("auto") == resolve("cpu") == resolve("cpu:0") == "cpu"
    why = "PyTorch finds no cuda device" if BUILT else "is built without CUDA: install a build"
    with pytest.raises(ValueError, match=rf"device cuda: .*{why}.*; use device cpu, or auto"):
        resolve("cuda")
    with pytest.raises(ValueError, match=r"device mps: there is no Apple GPU"):
        Simulation(make("fedavg"), Clinic(), device="mps")
    assert Simulation(make("fedavg"), Clinic(), device="auto").job.device == "cpu"
    assert engine_device.devices()[0].name == "cpu" and title("cpu") == "cpu"


def test_names_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gpu", "meta", "CUDA", "cuda:x", ""):
        with pytest.raises(ValueError, match=r"no device is named .*; write auto, cpu, cuda, cuda:1, mps"):
            check_name(name)
    with pytest.raises(ValueError, match=r"device warp: PyTorch knows no such device; .*UNDRIFT_DEVICE_MODULE"):
        resolve("warp")
    with pytest.raises(ValueError, match=r"UNDRIFT_DEVICE_MODULE=nosuch_backend: cannot be imported"):
        plug_in("nosuch_backend")
    monkeypatch.setenv("UNDRIFT_DEVICE_MODULE", "nosuch_backend")
    with pytest.raises(ValueError, match=r"name a module on PYTHONPATH that registers a device with PyTorch"):
        resolve("cpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((2, -0.5, 1), r"gpus must be a worker's share of one GPU, from 0 to 1, got -0.5"),
        ((2, 2.0, 4), r"from 0 to 1, got 2.0: a worker trains on one"),
        ((2, 0.5, 0), r"gpus=0.5: Ray has no GPU here"),
        ((3, 0.4, 1), r"3 workers with gpus=0.4 need 2 GPUs and Ray has 1: set workers to 2 or .* gpus to 0.3333"),
        ((9, 0.25, 2), r"9 workers with gpus=0.25 need 3 GPUs and Ray has 2: set workers to 8 or .* gpus to 0.2 "),
    ],
)
def test_shares_that_cannot_work_are_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_shares("Pool", *given)


def test_shares_and_devices_that_work() -> None:
    for workers, share, there in ((3, 0.3333, 1), (4, 0.5, 2), (2, 1.0, 2), (5, 0.0, 0)):
        check_shares("Pool", workers, share, there)
    for name, share in (("cpu", 0.0), ("mps", 0.0), ("cuda", 0.5)):
        check_share(name, share)
    with pytest.raises(ValueError, match=r"device cuda:1: Ray gives .*; write device cuda .* CUDA_VISIBLE_DEVICES=1"):
        check_share("cuda:1", None)
    with pytest.raises(ValueError, match=r"device cuda: the workers have no GPU; give each a share, gpus=0.5"):
        check_share("cuda", 0.0)
    with pytest.raises(ValueError, match=r"gpus=0.5: the run is on device cpu, .*; set device to cuda, or leave"):
        check_share("cpu", 0.5)


def test_deterministic_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    expected = Simulation(make("fedavg"), Clinic(), LOCAL).run(1)
    try:
        found = Simulation(make("fedavg"), Clinic(), LOCAL, deterministic=True).run(1)
        assert fingerprint(found) == fingerprint(expected)
        assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
        with pytest.raises(ValueError, match=r"CUBLAS_WORKSPACE_CONFIG=:0:0 is not deterministic: unset it"):
            use_deterministic()
    finally:
        use_deterministic(False)
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.deterministic


@pytest.mark.quick
def test_a_visit_is_measured_and_workers_are_chosen() -> None:
    job = Job(make("scaffold"), Clinic(), LOCAL)
    probe = probe_visit(job, steps=2)
    assert (probe.device, probe.client, probe.steps) == ("cpu", 4, 2) and probe.seconds > 0
    assert probe.bytes is not None and probe.bytes >= 0
    plan, _ = choose_workers(job, cohort=5, processors=3)
    assert 1 <= plan.workers <= 3 and plan.gpus == 0
    with peak_memory("cpu") as peak:
        torch.ones(1000)
        synchronize("cpu")
    assert peak.bytes is not None


@needed
def test_a_moving_average_on_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.core.model.flat_model.SINGLE", ("mps", "pretend"))
    rows = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    found = lap_d(5).rows(rows.to("pretend"), None)
    assert found.device.type == "pretend" and torch.equal(found.cpu(), lap_d(5).rows(rows, None))
