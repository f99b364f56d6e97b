"""The same rounds on Flower's own simulation: its SuperNodes host the clients, each a share of them.

It is for people who want to see their method on Flower's engine before they deploy it; `engine.ray` is faster.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from undrift.core.types import ServerState
from undrift.engine.flower.client_app import client_app
from undrift.engine.flower.strategy import UndriftStrategy
from undrift.engine.simulation import Record, Simulation
from undrift.engine.worker import Worker

try:
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error


class _StoppedError(Exception):
    """Nobody waits for the next round any more."""


@dataclass
class FlowerSimulation(Simulation):
    """Federated training on Flower's simulation, used like `Simulation`.

    Args:
        workers: how many SuperNodes; no result depends on it.
        deadline: seconds after which a round is closed with the clients that answered.

    Without `root` the clients' states end with a call of `rounds`.
    """

    workers: int = 2
    deadline: float = 3600.0

    @cached_property
    def worker(self) -> Worker:
        """A worker in this process that sees the clients' states, to evaluate their models."""
        if self.root is None:
            raise RuntimeError("FlowerSimulation: the clients' states ended with the run; give root= to keep them")
        return Worker.on_disk(self.job, self.root)

    def rounds(self, rounds: int, state: ServerState | None = None) -> Iterator[tuple[ServerState, Record]]:
        """Train for some rounds and give the state and a record after each."""
        state = state or self.start()
        if rounds < 1:
            return
        told: Queue[tuple[ServerState, Record] | BaseException | None] = Queue(maxsize=1)
        stop = Event()
        with TemporaryDirectory(prefix="undrift-") as aside:
            root = self.root or Path(aside) / "states"
            thread = Thread(target=self._play, args=(rounds, state, root, told, stop), daemon=True)
            thread.start()
            try:
                while (item := told.get()) is not None:
                    if isinstance(item, BaseException):
                        raise item
                    yield item
            finally:
                stop.set()
                while thread.is_alive():
                    if not told.empty():
                        told.get()
                    thread.join(0.1)

    def _play(self, rounds: int, state: ServerState, root: Path, told: "Queue[Any]", stop: Event) -> None:
        """Run Flower's simulation; every round is handed over before the next begins."""
        app = ServerApp()
        failed: list[BaseException] = []

        def hand_over(state: ServerState, record: Record) -> None:
            if stop.is_set():
                raise _StoppedError
            told.put((state, record))

        @app.main()
        def main(grid: Grid, _: Context) -> None:
            try:
                self._strategy(state, root.name, hand_over).start(
                    grid, ArrayRecord(self.task.model().state_dict()), rounds, self.deadline
                )
            except BaseException as error:
                failed.append(error)

        log = logging.getLogger("flwr")
        level = log.level
        log.setLevel(logging.WARNING)  # what it says is in the records, too
        resources: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": self.workers}}
        try:
            run_simulation(app, client_app(self.job, root=root.parent), self.workers, backend_config=resources)
        except BaseException as error:
            failed.append(error)
        finally:
            log.setLevel(level)
        told.put(failed[0] if failed and not isinstance(failed[0], _StoppedError) else None)

    def _strategy(self, state: ServerState, run: str, hand_over: Any) -> UndriftStrategy:
        """The strategy of these rounds, from a state on."""
        return UndriftStrategy(
            self.algorithm,
            self.task.model(),
            self.local,
            population=self.task.population,
            cohort=self.cohort,
            seed=self.seed,
            bound=self.bound,
            quorum=0.0,
            poll=0.02,
            run=run,
            state=state,
            on_round=hand_over,
        )
