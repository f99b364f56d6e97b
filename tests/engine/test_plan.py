"""The number of workers from memory and time, by hand."""

from typing import Any

import pytest

from undrift.engine.worker.measure import Probe
from undrift.engine.worker.worker_plan import Plan, plan_workers

GB = 1_000_000_000
TABLE = [
    # bytes, seconds, free, devices, processors, cohort -> workers, gpus, reason
    ((1 * GB, 1.0, 24 * GB, 1, 16, 100), (8, 0.125, "8 on a device")),
    ((4 * GB, 1.0, 24 * GB, 1, 16, 100), (4, 0.25, "memory")),
    ((6 * GB, 1.0, 24 * GB, 1, 16, 100), (3, 0.3333, "memory")),
    ((20 * GB, 1.0, 24 * GB, 1, 16, 100), (1, 1.0, "memory")),
    ((4 * GB, 1.0, 24 * GB, 2, 16, 100), (8, 0.25, "memory")),
    ((20 * GB, 1.0, 24 * GB, 4, 16, 100), (4, 1.0, "memory")),
    ((2 * GB, 1.0, 24 * GB, 2, 5, 100), (4, 0.5, "processors")),
    ((2 * GB, 1.0, 24 * GB, 2, 16, 3), (2, 1.0, "clients in a round")),
    ((2 * GB, 1.0, 24 * GB, 4, 16, 3), (3, 1.0, "clients in a round")),
    ((2 * GB, 0.01, 24 * GB, 1, 16, 10), (2, 0.5, "work in a round")),
    ((2 * GB, 0.0001, 24 * GB, 1, 16, 10), (1, 1.0, "work in a round")),
    ((None, 1.0, 24 * GB, 1, 4, 100), (4, 0.25, "processors")),
    ((2 * GB, 1.0, None, 1, 4, 100), (4, 0.25, "processors")),
]


@pytest.mark.parametrize(("given", "expected"), TABLE)
def test_workers_and_fractions_by_hand(given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    size, seconds, free, devices, processors, cohort = given
    probe = Probe("cuda", 0, 5, seconds, size)
    plan = plan_workers(probe, free, devices=devices, processors=processors, cohort=cohort)
    assert (plan.workers, plan.gpus, plan.reason) == expected
    assert plan.workers // devices * plan.gpus <= 1


def test_on_other_devices_there_are_no_fractions() -> None:
    assert plan_workers(Probe("mps", 0, 5, 1.0, GB), 8 * GB, processors=4, cohort=9) == Plan("mps", 4, 0, "processors")
    assert plan_workers(Probe("cpu", 0, 5, 1.0, GB), 4 * GB, processors=4, cohort=9) == Plan("cpu", 2, 0, "memory")


def test_a_number_that_is_given_is_checked() -> None:
    probe = Probe("cuda", 0, 5, 1.0, 5 * GB)
    assert plan_workers(probe, 24 * GB, workers=3) == Plan("cuda", 3, 0.3333, "as given")
    assert plan_workers(probe, 24 * GB, workers=4, devices=2).gpus == 0.5
    with pytest.raises(ValueError, match=r"5 workers on one device need 27.5 GB .* free: set workers to 3"):
        plan_workers(probe, 24 * GB, workers=5)
    with pytest.raises(ValueError, match=r"a worker needs 5.5 GB and 4.0 GB are free: stop other programs"):
        plan_workers(probe, 4 * GB)
