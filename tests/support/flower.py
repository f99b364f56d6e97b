"""What the tests of the Flower engine share: a task, a reference, a strategy, and a clock of their own."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from support import flower_grid
from support.flower_grid import StandInGrid
from undrift import Local, Simulation, make
from undrift.core.records.types import ServerState
from undrift.engine.flower.server import exchange, node_arrivals, receive, roster, secure_exchange, strategy, tally
from undrift.flower import Job, UndriftStrategy, client_app
from undrift.testing import Clinic, clinic

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
TASK = Clinic()
ALL = list(range(8))


def state_of(strategy: UndriftStrategy) -> ServerState:
    """The state of a strategy that has begun."""
    assert strategy.state is not None
    return strategy.state


class Clock:
    """A clock that moves only when someone sleeps: deadlines do not depend on how busy the machine is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1e-6)


@pytest.fixture(name="real_time")
def true_clock() -> None:
    """For tests of the true clock."""


@pytest.fixture(name="clock", autouse=True)
def own_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    if "real_time" not in request.fixturenames:
        for module in (receive, roster, node_arrivals):
            monkeypatch.setattr(module, "sleep", clock.sleep)
        for module in (strategy, exchange, receive, roster, node_arrivals, secure_exchange, tally, flower_grid):
            monkeypatch.setattr(module, "monotonic", clock)
    return clock


def task_of(name: str) -> Clinic:
    """The task with a model that fits the algorithm."""
    return clinic(make(name))


def reference(name: str, rounds: int = 3, local: Local = LOCAL) -> ServerState:
    return Simulation(make(name), task_of(name), local, cohort=5, seed=3).run(rounds)


def rounds_of(name: str, *clients: list[int], local: Local = LOCAL) -> ServerState:
    """The state after rounds with the clients given."""
    simulation = Simulation(make(name), TASK, local, seed=3)
    state = simulation.start()
    for chosen in clients:
        state, _ = simulation.round(state, chosen)
    return state


def grid_of(name: str, nodes: int, root: Path, seed: int = 0) -> StandInGrid:
    return StandInGrid(client_app(Job(make(name), task_of(name))), nodes, root, seed)


def strategy_of(name: str, **settings: Any) -> UndriftStrategy:
    given = {"population": 8, "seed": 3, "wait": 2.0, "poll": 0.01, "deadline": 20.0, **settings}
    return UndriftStrategy(make(name), task_of(name).model(), given.pop("local", LOCAL), **given)


def start(strategy: UndriftStrategy, grid: Grid, rounds: int = 3, task: Clinic = TASK, **arguments: Any) -> Any:
    return strategy.start(grid, ArrayRecord(task.model().state_dict()), rounds, **arguments)
