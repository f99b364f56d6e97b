"""Fast simulation: one restartable Ray actor per worker, on one machine or a cluster.

Ray moves the broadcast once through its object store and returns the partial sums. A worker that dies is restarted and
its clients are trained again; each counts once. The result is bit-identical to that of one process.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from undrift.core import wire
from undrift.core.gate import Gate
from undrift.core.types import Broadcast, ServerState
from undrift.engine.backend import DiskBackend
from undrift.engine.cost import VisitCost, spread_out
from undrift.engine.device import kind_of
from undrift.engine.job import Job, Score
from undrift.engine.partial import Partial
from undrift.engine.plan import check_kind
from undrift.engine.pool import Pool, as_arrays, as_tensors, fitting_pool

try:
    import ray
    from ray.exceptions import RayActorError
except ImportError as error:  # pragma: no cover
    raise ImportError("RayBackend needs Ray: pip install 'undrift[ray]'") from error


class RayBackend(DiskBackend):
    """Trains clients on Ray workers.

    Args:
        pool: the workers; None starts two on first use, on GPUs as many as `fitting_pool`, and `close` ends them.
        chunk: the most clients a worker gets at once: smaller chunks balance better and lose less when a worker dies,
            larger ones mean fewer replies; None takes 64, or more if a worker would get over four chunks.
        retries: how often a chunk is run again after its worker died.
        root: folder for the clients' states, which all workers must be able to access; None creates a temporary one,
            deleted by `close`.
    """

    def __init__(
        self, pool: Pool | None = None, chunk: int | None = None, retries: int = 3, root: str | Path | None = None
    ) -> None:
        super().__init__(root)
        if chunk is not None and chunk < 1:
            raise ValueError(f"RayBackend: chunk must be 1 or more clients, or None, got {chunk}")
        if retries < 0:
            raise ValueError(f"RayBackend: retries must be 0 or more, got {retries}")
        self.chunk, self.retries = chunk, retries
        self._given = pool
        self._own: Pool | None = None
        self._held: list[Any] = []
        self._cost = VisitCost()

    def open(self, job: Job) -> None:
        """Accept the job, if the workers can train on its device."""
        own = float(kind_of(job.device) == "cuda")
        try:
            check_kind(job.device, own if self._given is None else self._given.gpus)
        except ValueError as error:
            raise ValueError(f"RayBackend: {error}") from None
        super().open(job)

    @property
    def pool(self) -> Pool:
        """The workers."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = Pool() if kind_of(self.job.device) != "cuda" else fitting_pool(self.job)
        return self._own

    def close(self) -> None:
        """End the workers and delete the folder that this backend created; a given pool keeps running."""
        if self._own is not None:
            self._own.stop()
            self._own = None
        self._held = []
        super().close()

    def collect(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Give each idle worker a chunk of clients until all are done, and add the replies as they arrive."""
        job = self.job
        gate = Gate(job.algorithm, job.local, broadcast, clients, job.bound, seed=job.seed)
        whole, packed = Partial(gate.total()), not self.pool.here
        sent = wire.flatten(broadcast)
        for tensors, summary in self._replies("serve", sent, clients, accepted, len(clients), packed):
            part = Partial(gate.total()).restore(as_tensors(tensors), summary, len(broadcast.params), packed)
            if gate.merge(part.total, whole.total) is None:
                whole.visits += part.visits
                self._cost.note(part.visits)
            whole.rejections += part.rejections
        whole.rejections += gate.rejections
        return whole

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """The losses of clients, in chunks as in training."""
        found: dict[int, float] = {}
        for part in self._replies("losses", wire.flatten(broadcast), clients, accepted, batches):
            found |= part
        return found

    def scores(self, state: ServerState, clients: Sequence[int], score: Score) -> dict[int, float]:
        """The scores of clients, in chunks as in training."""
        sent = {"params": state.params, "buffers": state.buffers, "counts": state.counts}
        found: dict[int, float] = {}
        for part in self._replies("scores", sent, clients, state.accepted, state.round, score):
            found |= part
        return {client: found[client] for client in clients}

    def _replies(
        self,
        verb: str,
        tensors: Mapping[str, Tensor],
        clients: Sequence[int],
        accepted: Mapping[int, int],
        *arguments: Any,
    ) -> Iterator[Any]:
        """The replies of the workers, each about a chunk of the clients; one whose worker died is asked for again."""
        pool, root = self.pool, str(self.states)
        if not self._held:
            self._held = [ray.put(self.job)]
        sent = ray.put(as_arrays(tensors))
        waiting = [(chunk, 0) for chunk in reversed(self._chunks(clients))]
        running: dict[Any, tuple[Any, list[int], int]] = {}
        idle = list(pool.actors)
        while waiting or running:
            while waiting and idle:
                actor, (chunk, tries) = idle.pop(), waiting.pop()
                known = {client: accepted[client] for client in chunk if client in accepted}
                reply = getattr(actor, verb).remote(self._held, root, sent, chunk, known, *arguments)
                running[reply] = (actor, chunk, tries)
            (done,), _ = ray.wait(list(running), num_returns=1)
            actor, chunk, tries = running.pop(done)
            idle.append(actor)
            try:
                found = ray.get(done)
            except RayActorError:
                if tries == self.retries:
                    raise
                pool.pid(actor)  # wait: a call to a dead worker would fail at once and use up a retry
                waiting.append((chunk, tries + 1))
                continue
            yield found

    def _chunks(self, clients: Sequence[int]) -> list[list[int]]:
        """The clients in chunks of about equal measured work, at least one per worker, the largest clients first."""
        task, workers = self.job.task, len(self.pool.actors)
        wanted = -(-len(clients) // self.chunk) if self.chunk else min(-(-len(clients) // 64), 4 * workers)
        count = max(min(workers, len(clients)), wanted)
        return spread_out({client: self._cost.expected(client, task.examples(client)) for client in clients}, count)
