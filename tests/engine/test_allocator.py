"""Memory that workers keep."""

import resource
import sys

import numpy as np
import pytest

from undrift import Simulation, make
from undrift.engine.worker import job
from undrift.engine.worker.device import VARIABLE, keep_memory, wants_memory
from undrift.testing import Clinic


@pytest.mark.quick
def test_the_variable_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert wants_memory(True) and not wants_memory(False)
    monkeypatch.setenv(VARIABLE, "0")
    assert not wants_memory(True)
    monkeypatch.setenv(VARIABLE, "1")
    assert wants_memory(False)
    monkeypatch.setenv(VARIABLE, "no")
    with pytest.raises(ValueError, match=r"UNDRIFT_KEEP_MEMORY must be 0, .* got 'no'"):
        wants_memory(True)


def test_a_worker_asks_for_it_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    calls: list[int] = []
    monkeypatch.setattr(job, "keep_memory", lambda: calls.append(1))
    for keep in (True, False):
        simulation = Simulation(make("fedavg"), Clinic(), keep_memory=keep)
        assert len(calls) == (not keep)  # nothing happens before a worker is needed
        assert simulation.worker and len(calls) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_freed_memory_is_used_again() -> None:
    if not keep_memory():
        pytest.skip("the C library is not glibc")
    assert keep_memory()
    np.ones(1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(1 << 20)  # 8 MB: 2,048 pages that would be fetched every time
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 2048
