"""Gives chunks of clients to Ray workers; those of a worker that is lost go to the others at once.

A worker is alive, starting, restarting or dead. Its chunk goes to another worker as soon as Ray reports that it is
lost; it gets work again once it has answered a ping. No chunk waits for it while other workers are free.
"""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from undrift.engine.ray_backend.start import first_line
from undrift.util.steps import tell, warn

Chunk = list[int]
Call = Callable[[int, Chunk], Any]
"""Sends a chunk to a worker, by its number, and returns Ray's reference to the reply."""

LOST = (RayActorError, ObjectLostError, OutOfMemoryError, WorkerCrashedError, NodeDiedError)
"""Ray's errors of a worker that is gone: another one can do its work."""
_CHECK = 1.0  # seconds between two checks of the workers while no reply arrives
_PATIENT = 60.0  # seconds without a worker, as at the start, before a warning
ALIVE, DEAD = 2, 4  # Ray's numbers of the states of an actor


class WorkerError(RayActorError):
    """Ray workers died and some clients could not be trained; the message names them and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(error_msg=why)


class Crew:
    """Which workers of a pool can take work; it outlives a round.

    Args:
        actors: the workers; the list may be emptied by its owner.
    """

    def __init__(self, actors: list[Any]) -> None:
        self.actors = actors
        self._lost: dict[int, Any] = {}  # number -> the ping that it has not answered yet; None if one has failed
        self._pinged = monotonic()

    def ready(self) -> list[int]:
        """The workers that can take work; lost ones that have answered their ping are among them again."""
        for number, ping in list(self._lost.items()):
            if ping is not None and ray.wait([ping], timeout=0)[0]:
                try:
                    ray.get(ping)
                except RayError:
                    self._lost[number] = None
                else:
                    del self._lost[number]
                    tell("a Ray worker is back")
        if self._lost and monotonic() - self._pinged > _CHECK:
            for number in [number for number, ping in self._lost.items() if ping is None and not self.dead(number)]:
                self.lose(number)
        return [number for number in range(len(self.actors)) if number not in self._lost]

    def lose(self, number: int) -> None:
        """Give a worker no work until it has answered a ping."""
        self._lost[number], self._pinged = self.actors[number].pid.remote(), monotonic()

    def pings(self) -> list[Any]:
        """The pings that lost workers have not answered."""
        return [ping for ping in self._lost.values() if ping is not None]

    def alive(self, number: int) -> bool:
        """Whether a worker runs, as far as this process knows without a request to Ray."""
        return number not in self._lost and actor_state(self.actors[number]) in (None, ALIVE)

    def dead(self, number: int) -> bool:
        """Whether a worker will not be started again."""
        return actor_state(self.actors[number]) == DEAD


def actor_state(actor: Any) -> int | None:
    """The last state of an actor that Ray reported to this process, without a new request; None if none was."""
    local = getattr(actor, "_get_local_state", None)
    state: int | None = None if local is None else local()
    return state


class Dispatch:
    """One request to the workers of a pool: its waiting and its running chunks.

    Args:
        crew: the workers.
        chunks: the clients.
        call: sends a chunk to a worker.
        retries: how often a chunk is sent again after its worker died.
        wait: seconds to wait for a worker when none is left.
        work: the participle of the work on the clients, for errors: "trained".
    """

    def __init__(
        self,
        crew: Crew,
        chunks: Sequence[Chunk],
        call: Call,
        *,
        retries: int,
        wait: float,
        work: str = "trained",
    ) -> None:
        self.crew, self.call, self.retries, self.wait, self.work = crew, call, retries, wait, work
        self.waiting = [(chunk, 0) for chunk in chunks]
        self.running: dict[Any, tuple[int, Chunk, int]] = {}
        self._since: float | None = None  # when the last worker was lost
        self._warned = False

    def replies(self) -> Iterator[Any]:
        """The replies of the workers, each about a chunk; one whose worker died is requested again from another."""
        while self.waiting or self.running:
            spare = self._send()
            reply = self._next()
            if reply is None:
                self._rescue(spare)
                continue
            number, chunk, tries = self.running.pop(reply)
            try:
                found = ray.get(reply)
            except RayTaskError as error:  # what the task or a score raised there: the same as in one process
                if isinstance(error.cause, Exception):
                    raise error.cause from error
                raise
            except LOST as error:
                if tries >= self.retries:
                    raise WorkerError(_died_often(chunk, tries + 1, error, self.work)) from error
                warn("a Ray worker was lost (%s); its clients %s go to another one", first_line(error), _names(chunk))
                self.crew.lose(number)
                self.waiting.insert(0, (chunk, tries + 1))
                continue
            self._since = None
            yield found

    def _send(self) -> list[int]:
        """Give every idle worker a chunk; returns those that got none."""
        busy = {number for number, _, _ in self.running.values()}
        spare = []
        for number in self.crew.ready():
            if number in busy:
                continue
            if not self.waiting:
                spare.append(number)
            else:
                chunk, tries = self.waiting.pop(0)
                self.running[self.call(number, chunk)] = (number, chunk, tries)
        return spare

    def _next(self) -> Any:
        """The next reply; None if there is none for a while, or if a lost worker has answered."""
        expected = [*self.running, *self.crew.pings()]
        if not expected:
            sleep(_CHECK)
            return None
        done, _ = ray.wait(expected, num_returns=1, timeout=_CHECK)
        return next((reference for reference in done if reference in self.running), None)

    def _rescue(self, spare: Sequence[int]) -> None:
        """Move chunks from workers that do not run to idle ones; raise if no worker runs for too long."""
        crew = self.crew
        stuck = [reference for reference, (number, _, _) in self.running.items() if not crew.alive(number)]
        for reference, _ in zip(stuck, [number for number in spare if crew.alive(number)], strict=False):
            number, chunk, tries = self.running.pop(reference)
            ray.cancel(reference)
            warn("a Ray worker has not started; its clients %s go to another one", _names(chunk))
            crew.lose(number)
            self.waiting.insert(0, (chunk, tries))
        workers = range(len(crew.actors))
        if any(crew.alive(number) for number in workers):
            self._since = None
            return
        now = monotonic()
        self._since = now if self._since is None else self._since
        gone = all(crew.dead(number) for number in workers)
        if gone or now - self._since > self.wait:
            left = [chunk for chunk, _ in self.waiting] + [chunk for _, chunk, _ in self.running.values()]
            clients = sorted(client for chunk in left for client in chunk)
            raise WorkerError(_no_worker_left(clients, len(workers), None if gone else self.wait, self.work))
        if not self._warned and now - self._since > _PATIENT:
            self._warned = True
            warn("no Ray worker is running; waiting %g s for one", self.wait)


def _died_often(chunk: Chunk, times: int, error: Exception, work: str) -> str:
    """The message for a chunk whose workers died again and again."""
    return (
        f"clients {_names(chunk)}: their Ray worker died {times} times ({first_line(error)}). One of them may need too "
        f"much memory or crash the process when it is {work}: do that in one process, without backend=, to see why, "
        "use fewer workers, or give RayBackend more retries="
    )


def _no_worker_left(clients: Chunk, workers: int, wait: float | None, work: str) -> str:
    """The message for a round without workers."""
    how = "will be started again" if wait is None else f"was running for {wait:g} s"
    return (
        f"none of {workers} Ray workers {how}; clients {_names(clients)} of this round are not {work}. See "
        "`ray status`: add a node or free processors and resume the run, use a smaller pool, or wait longer with "
        "RayBackend(wait=...)"
    )


def _names(clients: Chunk) -> str:
    """The clients of a message; of many the first ones."""
    return ", ".join(map(str, clients[:10])) + (f" and {len(clients) - 10} more" if len(clients) > 10 else "")
