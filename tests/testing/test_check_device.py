"""A device is checked against the CPU, and the report says what was found."""

import json
from typing import Any

import pytest
import torch

from support.devices import needed
from undrift import Simulation
from undrift.testing import DeviceReport, check_device
from undrift.testing import device as measured
from undrift.testing.device import MethodCheck, step_ratios

METHODS = ("fedfft-d", "krum")


@pytest.mark.sweep(every=4)
@needed
def test_methods_on_a_device_have_the_cpus_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_DEVICE_MODULE", "support.pretend")
    seen: list[MethodCheck] = []
    report = check_device("pretend", METHODS, rounds=1, deterministic=True, measure=False, watch=seen.append)
    assert not report.failures and report.methods == tuple(seen) and report.float64 == "device"
    assert all(check.equal and check.repeats and check.difference == 0 for check in report.methods)
    assert not torch.are_deterministic_algorithms_enabled()
    read = json.loads(report.json())
    assert [x["method"] for x in read["methods"]] == list(METHODS) and read["failures"] == {}
    assert "2 of 2 methods pass: within 1e-02 of the CPU, and equal in two runs." in report.markdown()


def test_a_difference_and_an_error_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, count = Simulation.run, iter(range(10))

    # the second run, on the device, gives another result
    def off(simulation: Any, rounds: Any, *more: Any, **given: Any) -> Any:
        state = plain(simulation, rounds, *more, **given)
        if next(count) == 1:
            state.params.add_(1.0)
        return state

    monkeypatch.setattr(Simulation, "run", off)
    report = check_device("cpu", ["fedavg", "fedavgg"], measure=False)
    assert "more than 1e-02" in report.failures["fedavg"] and "fedavgg" in report.failures["fedavgg"]
    assert "0 of 2 methods pass" in report.markdown()
    unequal = DeviceReport("cuda", "GPU", 1e-2, True, "device", (MethodCheck("fedavg", equal=True),))
    assert unequal.failures == {"fedavg": "two runs with deterministic kernels are not equal"}


@pytest.mark.quick
def test_ratios_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_EXAMPLES", 50)
    ratios = step_ratios("cpu", repetitions=1)
    assert ratios.keys() == {"visit_over_bare", "fedsam_over_fedavg", "specgrad_over_fedavg", "device_over_cpu"}
    assert ratios["fedsam_over_fedavg"] > 1
    report = check_device("cpu", ["fedavg"], engines=False)
    assert report.plan is not None and report.probe is not None and "A visit of the ratios' model" in report.markdown()
