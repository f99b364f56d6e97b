"""One thread for small models by default; what the user has chosen stays."""

import logging
from collections.abc import Iterator

import pytest
import torch

from undrift import Local, Simulation
from undrift.engine.round import threads
from undrift.testing import Clinic


@pytest.fixture(name="four", autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with four processors on which no number of threads was chosen."""
    before = torch.get_num_threads()
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(threads, "_BEGAN_WITH", 4)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    threads._notify.cache_clear()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


class Watched(Clinic):
    """A task that notes the number of threads of every loss."""

    seen: set[int]

    def loss(self, model: torch.nn.Module, batch: object) -> torch.Tensor:
        self.__dict__.setdefault("seen", set()).add(torch.get_num_threads())
        return super().loss(model, batch)  # type: ignore[arg-type]


def seen(given: int | None = None) -> tuple[set[int], int | None]:
    """The numbers of threads with which clients trained, and the number that the simulation reports."""
    task = Watched()
    simulation = Simulation("fedavg", task, Local(lr=0.1, batch_size=4), cohort=2, threads=given)
    simulation.run(1)
    return task.seen, simulation.threads


def test_a_small_model_is_trained_by_one_thread_with_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "undrift.steps"):
        assert seen() == seen() == ({1}, 1)
    assert torch.get_num_threads() == 4  # the user's own code keeps its threads
    assert [r.getMessage().partition(":")[0] for r in caplog.records if r.name == "undrift.steps"] == [
        "torch uses 1 of its 4 threads while a small model is trained here"
    ]


def test_a_number_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(3)
    assert seen() == ({3}, None)
    torch.set_num_threads(4)
    assert seen(given=2) == ({2}, 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert seen() == ({4}, None)


def test_a_large_model_keeps_torchs_threads() -> None:
    assert threads.choose_threads(threads.SMALL + 1) is None and threads.choose_threads(threads.SMALL) == 1


def test_a_number_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="threads must be 1 or more, got 0"):
        seen(given=0)
