"""Trains a simulation's clients on Flower's own simulation, whose SuperNodes host a share of the clients each.

Use it to see a method on Flower's engine before you deploy it; `RayBackend` is faster.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import thread as pool
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from undrift.core.model.flat_model import bind
from undrift.core.records.types import Broadcast
from undrift.engine.flower.holdings import Holdings
from undrift.engine.flower.node.client_app import build_app
from undrift.engine.flower.records import Answer
from undrift.engine.flower.server.orders import Orders
from undrift.engine.flower.server.receive import LATE, receive
from undrift.engine.flower.server.roster import Roster
from undrift.engine.flower.server.tally import Tally
from undrift.engine.round.arguments import whole_number
from undrift.engine.round.backend import DiskBackend
from undrift.engine.worker.device import check_share
from undrift.engine.worker.job import Job, VersionGroup
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.worker_plan import check_shares

_RUN = "simulation"  # a run's name matters only on real nodes: here the state folder is given
_START = 600.0  # seconds Flower's workers may take to start and import torch on a busy machine
_POLL = 0.02  # longest pause between two polls for replies
_CHECK = 0.5  # seconds between two checks whether the other thread is alive


@dataclass(frozen=True, eq=False)
class _Request:
    """Clients to train, or losses to request, and the future for the result."""

    groups: Sequence[VersionGroup]
    accepted: Mapping[int, int]
    answer: "Callable[[Grid, Roster, _Request], Any]"
    cohort: int = 0
    batches: int | None = None
    result: "Future[Any]" = field(default_factory=Future)


class FlowerBackend(DiskBackend):
    """Trains clients on Flower's simulation, which starts with the first round and ends when this backend is closed.

    Args:
        workers: how many SuperNodes, each in its own process; this does not affect results.
        deadline: seconds after which a round is closed with the clients that replied; the record lists the others as
            absent.
        root: folder for the clients' states; None creates a temporary one, deleted by `close`.
        gpus: each SuperNode's share of a GPU, Flower's client resource num_gpus: 0.25 puts four on each; 0 uses none.
    """

    def __init__(
        self, workers: int = 2, deadline: float = 3600.0, root: str | Path | None = None, gpus: float = 0.0
    ) -> None:
        super().__init__(root)
        workers = whole_number("FlowerBackend: workers", workers, 1)
        if not 0 < deadline < float("inf"):
            raise ValueError(f"FlowerBackend: deadline must be a positive number of seconds, got {deadline}")
        check_shares("FlowerBackend", workers, gpus, torch.cuda.device_count())
        self.workers, self.deadline, self.gpus = workers, deadline, gpus
        self._requests: Queue[_Request | None] = Queue()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None
        self._holdings: Holdings | None = None

    def open(self, job: Job) -> None:
        """Accept the job."""
        if not -(2**63) <= job.seed < 2**63:
            raise ValueError(
                f"FlowerBackend: seed must fit into 64 bits to be sent in Flower's messages, got {job.seed}"
            )
        check_share(job.device, self.gpus, "FlowerBackend: ")
        super().open(job)
        if job.algorithm.fills("personalization"):  # all of the model travels with any other method
            self._holdings = Holdings(job.algorithm, bind(job.task.model()).layout)

    def collect(self, groups: Sequence[VersionGroup], accepted: Mapping[int, int], cohort: int) -> list[Partial]:
        """Send the orders of all groups to the nodes and sum the replies of each."""
        result: list[Partial] = self._request(_Request(groups, accepted, self._round, cohort))
        return result

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """Request the losses of clients from their nodes."""
        groups = [VersionGroup(broadcast, clients)]
        result: dict[int, float] = self._request(_Request(groups, accepted, self._losses, batches=batches))
        return result

    def _request(self, request: _Request) -> Any:
        """Pass a request to the thread that exchanges messages with the nodes, and wait for its result."""
        if self.closed or (self._stopped.is_set() and self._error is None):
            raise RuntimeError("FlowerBackend is closed; create a new one for a new Simulation")
        if not self._threads:
            self._start()
        self._requests.put(request)
        thread = self._threads[0]
        while not request.result.done() and thread.is_alive():
            wait([request.result], timeout=_CHECK)
        if self._error is not None or not request.result.done():
            raise RuntimeError(f"Flower's simulation has ended: {self._error!r}") from self._error
        return request.result.result()

    def close(self) -> None:
        """End Flower's simulation once the clients in training are done, and wait for its threads."""
        self._stopped.set()
        self._requests.put(None)
        for thread in self._threads:  # Flower's server adds itself while the first thread is joined
            thread.join()
        self._threads.clear()
        super().close()

    def _start(self) -> None:
        """Start Flower's simulation in a thread."""
        try:
            import ray  # imported here because real nodes do not need it
        except ImportError as error:  # pragma: no cover
            raise ImportError(
                "FlowerBackend needs the Ray of Flower's simulation: pip install 'flwr[simulation]>=1.41,<1.42'"
            ) from error
        if ray.is_initialized():
            raise RuntimeError(
                "FlowerBackend: Ray is running in this process, and Flower's simulation would use it and shut it down "
                "at its end; call ray.shutdown() first, or use RayBackend"
            )
        thread = threading.Thread(target=self._simulate, name="undrift-flower", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _simulate(self) -> None:
        """Run Flower's simulation until the last request."""
        log = logging.getLogger("flwr")
        level = log.level
        log.setLevel(logging.WARNING)  # its messages about rounds are in the records, too
        resources: Any = {
            "client_resources": {"num_cpus": 1, "num_gpus": self.gpus},
            "init_args": {"num_cpus": self.workers},
        }
        try:
            from flwr.simulation import run_simulation

            app, states = ServerApp(), self.states
            app.main()(self._serve)
            nodes = build_app(self.job, lambda *_: states, None, threads=1, shares=lambda _: True)
            run_simulation(app, nodes, self.workers, backend_config=resources)
        except BaseException as error:
            self._error = error
        finally:
            log.setLevel(level)
            self._stopped.set()  # if Flower failed, its server still waits for replies or for a request
            self._requests.put(None)

    def _serve(self, grid: Grid, _: Context) -> None:
        """The ServerApp: run one round per request."""
        self._threads.append(threading.current_thread())  # Flower does not wait for it, `close` does
        roster = Roster(self.job.task.population, self._stopped.is_set)
        while (request := self._next()) is not None:
            try:
                request.result.set_result(request.answer(grid, roster, request))
            except BaseException as error:
                request.result.set_exception(error)

    def _next(self) -> _Request | None:
        """The next request; None if there will be none, also if the program ends without `close`."""
        while not getattr(pool, "_shutdown", False):  # true once Python waits for Flower's threads to end
            try:
                return self._requests.get(timeout=_CHECK)
            except Empty:
                continue
        return None

    def _round(self, grid: Grid, roster: Roster, request: _Request) -> list[Partial]:
        """Send the orders of a round and collect the replies."""
        job, round = self.job, max(group.broadcast.round + group.timing.age for group in request.groups) + 1
        orders = Orders(_RUN, job.algorithm, job.local, job.seed, job.bound, holdings=self._holdings)
        tallies = list[Tally]()
        for sent, clients, timing in request.groups:
            nodes, _ = roster.find(grid, clients, len(clients), None, _START, _POLL)
            limits = (request.accepted, self.deadline)
            tallies.append(orders.write(sent, nodes, *limits, timing=timing, cohort=request.cohort))
        of = {id(message): tally for tally in tallies for message in tally.messages}
        messages = [message for tally in tallies for message in tally.messages]
        for reply in receive(grid, messages, self.deadline, poll=_POLL, enough=self._stopped.is_set):
            if reply.message is None and reply.why != LATE:
                raise RuntimeError(f"a worker of Flower's simulation failed in round {round}: {reply.why}")
            of[id(reply.sent)].take(reply)
        if self._stopped.is_set():
            raise RuntimeError(f"FlowerBackend was closed during round {round}")
        return [tally.partial() for tally in tallies]

    def _losses(self, grid: Grid, roster: Roster, request: _Request) -> dict[int, float]:
        """Request the losses of clients and collect them."""
        (group,) = request.groups
        job, found, asked = self.job, dict[int, float](), group.clients
        groups, _ = roster.find(grid, asked, len(asked), None, _START, _POLL)
        orders = Orders(_RUN, job.algorithm, job.local, job.seed, job.bound)
        messages = orders.ask(group.broadcast, groups, request.accepted, request.batches, self.deadline)
        members = dict(zip(map(id, messages), groups.values(), strict=True))
        for reply in receive(grid, messages, self.deadline, poll=_POLL, enough=self._stopped.is_set):
            if reply.message is None:
                raise RuntimeError(f"candidates of round {group.broadcast.round + 1} did not answer: {reply.why}")
            clients = members[id(reply.sent)]
            losses = Answer.read(reply.message.content, 8 * len(clients), 0).tensors["losses"]
            found |= dict(zip(clients, losses.tolist(), strict=True))
        if len(found) < len(asked):
            raise RuntimeError("FlowerBackend was closed while it waited for the losses of candidates")
        return found
