"""Fast simulation: one restartable Ray actor per worker, on one machine or a cluster.

Ray moves the broadcast once through its object store and returns the partial sums. A worker that dies is restarted and
its clients are trained again; each counts once. The result is bit-identical to that of one process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray
from torch import Tensor

from undrift.core.method.algorithm import cost
from undrift.core.records.types import Broadcast, ServerState
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.engine.ray_backend.balance import VisitCost, balance
from undrift.engine.ray_backend.dispatch import LOST, Call, Chunk, Dispatch
from undrift.engine.ray_backend.pool import Pool, Request, as_arrays, as_tensors, fitting_pool
from undrift.engine.ray_backend.start import count_nodes, first_line, put
from undrift.engine.ray_backend.tree import Tree
from undrift.engine.round.arguments import whole_number
from undrift.engine.round.backend import DiskBackend
from undrift.engine.worker.device import check_share, kind_of
from undrift.engine.worker.job import Job, Score, VersionGroup
from undrift.engine.worker.partial_sum import Partial
from undrift.util.steps import warn

_WORDS = {"serve": "trained", "scores": "evaluated", "losses": "evaluated as a candidate"}


class _Work(NamedTuple):
    """What workers shall do: named tensors, the clients, and further arguments of the actor's method."""

    tensors: Mapping[str, Tensor]
    clients: Sequence[int]
    arguments: tuple[Any, ...]


class RayBackend(DiskBackend):
    """Trains clients on Ray workers.

    Args:
        pool: the workers; None starts two on first use, on GPUs as many as `fitting_pool`, and `close` ends them.
        chunk: the most clients a worker gets at once: smaller chunks balance better and lose less when a worker dies,
            larger ones mean fewer replies; None takes 64, or more if a worker would get over four chunks.
        retries: how often a chunk is run again after its worker died.
        root: folder for the clients' states, which all workers must be able to access, or the URL of an object store,
            as s3://bucket/run: see `ObjectStore`; None creates a temporary folder, deleted by `close`.
        wait: seconds to wait for a worker when none is left; then `WorkerError` is raised.
        fan_in: how many replies workers merge into one before the server sees them, 2 or more, in as many levels as it
            takes: the server then merges `fan_in` replies at most, with the same bits. None sends all to the server, as
            do methods that gather uploads, whatever it is: their replies do not become smaller.
    """

    urls = True

    def __init__(
        self,
        pool: Pool | None = None,
        chunk: int | None = None,
        retries: int = 3,
        root: str | Path | None = None,
        wait: float = 300.0,
        fan_in: int | None = None,
    ) -> None:
        if isinstance(root, str) and root.startswith("node:"):
            raise ValueError(
                f"RayBackend: states on the nodes' own disks were removed, got {root}; give root= a folder that all "
                "nodes can access, or the URL of an object store, as s3://bucket/run"
            )
        super().__init__(root)
        if chunk is not None and type(chunk) is not bool and chunk < 1:
            raise ValueError(f"RayBackend: chunk must be 1 or more clients, or None, got {chunk}")
        self.chunk = None if chunk is None else whole_number("RayBackend: chunk", chunk, 1)
        self.retries = whole_number("RayBackend: retries", retries)
        if not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
            raise ValueError(f"RayBackend: wait must be a number of seconds, 0 or more, got {wait!r}")
        self.wait = wait
        self.fan_in = None if fan_in is None else whole_number("RayBackend: fan_in", fan_in, 2)
        self._given = pool
        self._own: Pool | None = None
        self._sent: Any = None  # Ray's reference to the job
        self._cost = VisitCost()

    def open(self, job: Job) -> None:
        """Accept the job, if the workers can train on its device."""
        check_share(job.device, None if self._given is None else self._given.gpus, "RayBackend: ")
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
        self._sent = None
        super().close()

    def collect(self, groups: Sequence[VersionGroup], accepted: Mapping[int, int], cohort: int) -> list[Partial]:
        """Give each idle worker a chunk of one group until all are done, and add the replies as they arrive."""
        job, packed = self.job, not self.pool.here
        sums: dict[int, tuple[Gate, Partial, VersionGroup]] = {}
        work, wholes = list[_Work](), list[Partial]()
        for group in groups:
            sent, clients, timing = group
            gate = job.gate(sent, clients, cohort, timing)
            wholes.append(Partial(gate.total(), rejections=gate.rejections))
            sums |= dict.fromkeys(clients, (gate, wholes[-1], group))
            work.append(_Work(wire.flatten(sent), clients, (cohort, packed, timing)))
        for clients, (tensors, summary) in self._served(work, accepted):
            gate, whole, (sent, _, _) = sums[clients[0]]
            self._cost.note(whole.take(gate, as_tensors(tensors), summary, len(sent.params), packed))
        return wholes

    def _served(self, work: Sequence[_Work], accepted: Mapping[int, int]) -> Iterator[Any]:
        """Train the clients: replies with their clients, merged by workers if there is a `fan_in`."""
        if self.fan_in is not None and not cost(self.job.algorithm).gathers:
            tree = Tree(self.fan_in, self.pool.actors, self._prepare(work, accepted), self._dispatch)
            trained = {held.clients[0]: held for held in tree.train(self._split(work))}
            try:
                groups = [[trained[client] for client in one.clients if client in trained] for one in work]
                tops = [held for replies in groups for held in tree.merge(replies)]
                found = ray.get([held.reply for held in tops])
            except LOST as error:
                warn("a tree of sums lost replies (%s); the clients are trained again", first_line(error))
            else:
                yield from zip((held.clients for held in tops), found, strict=True)
                return
        yield from self._replies("serve", work, accepted)

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """The losses of clients, in chunks as in training."""
        found: dict[int, float] = {}
        for part in self._replies("losses", [_Work(wire.flatten(broadcast), clients, (batches,))], accepted):
            found |= part
        return found

    def scores(self, state: ServerState, clients: Sequence[int], score: Score) -> dict[int, float]:
        """The scores of clients, in chunks as in training."""
        sent = {"params": state.params, "buffers": state.buffers, "counts": state.counts}
        found: dict[int, float] = {}
        function = put("the score function", score)
        for part in self._replies("scores", [_Work(sent, clients, (state.round, function))], state.accepted):
            found |= part
        return {client: found[client] for client in clients}

    def _replies(self, method: str, work: Sequence[_Work], accepted: Mapping[int, int]) -> Iterator[Any]:
        """The replies of the workers, each about a chunk of the clients; one whose worker died is requested again."""
        prepare = self._prepare(work, accepted)

        def call(number: int, chunk: Chunk) -> Any:
            return getattr(self.pool.actors[number], method).remote(*prepare(chunk))

        yield from self._dispatch(call, self._split(work), _WORDS[method])

    def _prepare(self, work: Sequence[_Work], accepted: Mapping[int, int]) -> Callable[[Chunk], tuple[Any, ...]]:
        """What gives the arguments of an actor's method for a chunk."""
        if self._sent is None:
            self._check_root()
            self._sent = put("the task", self.job)
        sent = dict[int, tuple[Any, tuple[Any, ...]]]()
        for one in work:
            sent |= dict.fromkeys(one.clients, (put("the model", as_arrays(one.tensors)), one.arguments))

        def prepare(chunk: Chunk) -> tuple[Any, ...]:
            known = {client: accepted[client] for client in chunk if client in accepted}
            model, arguments = sent[chunk[0]]
            return (model, Request(self._sent, str(self.home), chunk, known), *arguments)

        return prepare

    def _split(self, work: Sequence[_Work]) -> list[Chunk]:
        """The clients in chunks, those of one model together."""
        return [chunk for one in work for chunk in self._chunks(one.clients)]

    def _dispatch(self, call: Call, chunks: Sequence[Chunk], work: str) -> Iterator[Any]:
        """Send chunks to workers."""
        return Dispatch(self.pool.crew, chunks, call, retries=self.retries, wait=self.wait, work=work).replies()

    def _check_root(self) -> None:
        """Raise if clients have states that workers on several machines would store in a temporary folder each."""
        job, nodes = self.job, 0 if self.pool.here else count_nodes()
        keeps = job.algorithm.keeps_buffers(job.local) or not job.algorithm.stateless
        if keeps and nodes > 1 and self.root is None:
            raise ValueError(
                f"RayBackend: this method keeps states of the clients, and a temporary folder is not shared by the "
                f"{nodes} nodes of the cluster; give root= a folder that all can access, or the URL of an object store"
            )

    def _chunks(self, clients: Sequence[int]) -> list[Chunk]:
        """The clients in chunks of about equal measured work, at least one per worker, the largest clients first."""
        task, workers = self.job.task, len(self.pool.actors)
        wanted = -(-len(clients) // self.chunk) if self.chunk else min(-(-len(clients) // 64), 4 * workers)
        count = max(min(workers, len(clients)), wanted)
        costs = {client: self._cost.estimate(client, int(task.examples(client))) for client in clients}
        return balance(costs, count, self.chunk)
