"""The server's side of a round: each reply passes the gate and is added to the exact sum as it arrives."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf, isfinite, nan
from statistics import median
from time import monotonic

import torch
from flwr.app import Message
from torch import Tensor

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.report import Reported
from undrift.core.records.types import Broadcast, Local, Upload
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.core.server.partial_check import ROUNDING
from undrift.core.server.total import Total
from undrift.core.server.wire import WireError
from undrift.engine.flower.holdings import Holdings
from undrift.engine.flower.records import Answer, RefusedError, one_line, read_version
from undrift.engine.flower.server.mailbox import Reply
from undrift.engine.round.quarantine import Sentence
from undrift.engine.round.record import Record
from undrift.engine.worker.job import NOW, Timing
from undrift.engine.worker.partial_sum import Partial, Visit

_log = logging.getLogger("flwr")  # Flower shows what is logged here
_SUMMARY = 4096  # the most characters per client in a summary
_REPEATED = "the same bits as the displacements that were accepted in round {}"
_FAR = 10  # so many times their median, or their median deviation from it, may losses be from the median
_FAMILY = 1 << 16  # and in addition for each family of scalars that a block reports


@dataclass(frozen=True)
class RoundRecord(Record):
    """The record of a round on Flower.

    Args:
        abandoned: whether too few uploads were accepted, so that the model was not changed.
        seconds: how long the round took.
        bound: the largest norm that a client's displacement could have; None if any.
        typical_norm: the quantile of the accepted norms that an adaptive bound follows; None without one.
        uploads: the digests of the accepted displacements, each with its node.
    """

    abandoned: bool = False
    seconds: float = 0.0
    bound: float | None = None
    typical_norm: float | None = None
    uploads: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def loss(self) -> float:
        """The mean training loss of the clients, each limited to ten times the median from it; nan if there are none.

        Losses are the nodes' word. As long as most are honest, the others do not move the mean far.
        """
        if self.summed:
            return super().loss
        limited = self._limited()
        return sum(limited) / len(limited) if limited else nan

    @property
    def limited_losses(self) -> int:
        """How many clients stated a loss that was limited."""
        return sum(a != b.loss for a, b in zip(self._limited(), self.visits, strict=True))

    def _limited(self) -> list[float]:
        losses = [visit.loss for visit in self.visits]
        middle = median(losses) if losses else 0.0
        width = _FAR * max(abs(middle), median(abs(loss - middle) for loss in losses) if losses else 0.0)
        return [min(max(loss, middle - width), middle + width) for loss in losses]

    def metrics(self) -> dict[str, int | float]:
        """The round in numbers."""
        counts = {"clients": len(self.visits), "rejected": len(self.rejections), "absent": len(self.absent)}
        numbers: dict[str, int | float] = {**counts, "abandoned": int(self.abandoned), "seconds": self.seconds}
        return {"loss": self.loss, **numbers, **self.reports} if self.visits else numbers

    def __str__(self) -> str:
        """One line for a log."""
        line = f"round {self.round + 1}: {len(self.visits)} clients, loss {self.loss:.4g}, {self.seconds:.1f} s"
        if self.rejections:
            node = self.nodes.get(self.rejections[0].client)
            where = "" if node is None else f"node {node}, "
            line += f"; {len(self.rejections)} rejected, the first: {where}{self.rejections[0]}"
        if self.quarantined:
            line += f"; {len(self.quarantined)} quarantined, the first: client {self.quarantined[0].client}"
        if self.absent:
            line += f"; {len(self.absent)} absent, the first: client {self.absent[0][0]}, {self.absent[0][1]}"
        if limited := self.limited_losses:
            line += f"; {limited} losses limited, far from the others'"
        return line + ("; ABANDONED, the model is unchanged" if self.abandoned else "")


@dataclass(eq=False)
class Tally:
    """The replies of one round, summed as they arrive; a client's first outcome, accepted or rejected, is final.

    Args:
        algorithm: the method.
        local: the settings all clients share.
        bound: largest norm of a client's displacement.
        broadcast: what was sent.
        clients: the clients of the round.
        seed: the run's seed.
        examples: the most examples that single clients may claim.
        share: the most of the round's weight that one node may have; below 1 the sum of each node is kept until the
            round is over.
        known: displacements that were accepted in earlier rounds, by digest, with the round from 1.
        timing: when the uploads arrive, under a schedule without a barrier.
        cohort: how many uploads the server adds up in all, here and elsewhere; 0 if those of `clients` are all.
        holdings: the models that nodes hold; None if they answer with whole vectors.
    """

    algorithm: Algorithm
    local: Local
    bound: float | None
    broadcast: Broadcast
    clients: frozenset[int]
    seed: int = 0
    examples: Mapping[int, int] = field(default_factory=dict)
    share: float = 1.0
    known: Mapping[str, int] = field(default_factory=dict)
    timing: Timing = NOW
    cohort: int = 0
    holdings: Holdings | None = None
    messages: list[Message] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    absent: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began, self.cohort = monotonic(), self.cohort or len(self.clients)
        self.total = self.empty()
        self._part = None if self.holdings is None else self.holdings.part(self.broadcast.round, up=True)
        self._members: dict[int, list[int]] = {}
        self._settled: set[int] = set()
        self.nodes: dict[int, int] = {}  # the node that each client was last ordered from
        self.uploads: dict[str, int] = {}  # digest of accepted displacements -> node
        self.summed: Mapping[str, float] = {}  # see Partial
        self._parts: dict[int, Total] = {}  # node -> its accepted sum, if shares are limited

    def expect(self, message: Message, clients: list[int]) -> None:
        """Register a message to a node, with the clients that it is about."""
        self.messages.append(message)
        self._members[id(message)] = clients
        self.nodes |= dict.fromkeys(clients, message.metadata.dst_node_id)

    def empty(self) -> Total:
        """A total without uploads."""
        return Total(self.algorithm, self.local, self.broadcast.round, self.broadcast.parts)

    def has_uploads(self, uploads: int) -> bool:
        """Whether at least this many uploads were accepted."""
        return len(self.visits) >= uploads

    @property
    def complete(self) -> bool:
        """Whether every client has an outcome."""
        return len(self._settled) == len(self.clients)

    def has_outcome(self, client: int) -> bool:
        """Whether a client has an outcome."""
        return client in self._settled

    def open_clients(self) -> list[int]:
        """The clients without an outcome so far, sorted."""
        return sorted(self.clients - self._settled)

    def mark_absent(self, clients: Iterable[int], why: str) -> None:
        """Record clients that sent no reply so far, with the reason."""
        self.absent.update({client: why for client in clients if client not in self._settled})

    def clients_of(self, message: Message) -> list[int]:
        """The clients that a message is about."""
        return self._members[id(message)]

    def most_bytes(self, message: Message) -> int:
        """The most bytes that the reply to a message may have."""
        clients = len(self.clients_of(message))
        return self._limit(clients) + 4 * self._most * clients  # a character takes up to 4 bytes

    def take(self, reply: Reply) -> None:
        """Add a reply to the sum, or reject it; no reply can end the round."""
        clients, node = self.clients_of(reply.sent), reply.sent.metadata.dst_node_id
        if self.holdings is not None:
            self.holdings.note(node, None)  # until its answer was read
        if reply.message is None and not reply.malformed:
            return self.mark_absent(clients, f"node {node}: {reply.why}")
        if twice := self._settled.intersection(clients):
            why = f"its reply came after client {min(twice)} had been settled by another"
            _log.warning("round %d, ignored a reply of node %d: %s", self.broadcast.round + 1, node, why)
            return self.mark_absent(clients, f"node {node}: {why}")
        gate = Gate(
            self.algorithm,
            self.local,
            self.broadcast,
            clients,
            self.bound,
            cohort=self.cohort,
            seed=self.timing.seed(self.seed),
            late=self.timing.age,
            examples=self.examples,
        )
        try:
            part, refused = self._enter(reply, clients, gate)
        except Exception as error:  # a hostile reply may fail in any way
            reason = error.reason if isinstance(error, RefusedError) else Reason.TREE
            part, refused = self._blank(), gate.reject(clients[0], reason, one_line(error))
        if refused is not None:
            return self.settle([], [Rejection(client, refused.reason, refused.detail) for client in clients])
        heard = {visit.client for visit in part.visits}
        rejected = [r for r in part.rejections if r.client in clients and r.client not in heard]
        self.settle(part.visits, [Rejection(r.client, r.reason, one_line(r.detail)) for r in rejected])
        return self.mark_absent(clients, "left out of its node's reply")

    def settle(self, visits: Sequence[Visit], rejections: Sequence[Rejection]) -> None:
        """Record the outcome of clients."""
        self.visits += visits
        self.rejections += rejections
        for client in (*(visit.client for visit in visits), *(rejection.client for rejection in rejections)):
            self._settled.add(client)
            self.absent.pop(client, None)

    def limit_shares(self) -> None:
        """Reject the nodes with more than their share of the weight, the heaviest first; the others are summed."""
        while self._parts:
            weights = {node: part.weight() for node, part in self._parts.items()}
            node, whole = max(weights, key=lambda node: (weights[node], node)), sum(weights.values())
            if weights[node] <= self.share * whole:
                break
            clients = set(self._parts.pop(node).clients)
            detail = f"node {node}: {weights[node] / whole:.0%} of the round's weight, at most {self.share:.0%}"
            self.visits = [visit for visit in self.visits if visit.client not in clients]
            self.rejections += [Rejection(client, Reason.SHARE, detail.replace("%", " %")) for client in clients]
            self.uploads = {digest: sender for digest, sender in self.uploads.items() if sender != node}
        for part in self._parts.values():
            self.total.merge(part)
        self._parts.clear()

    def partial(self) -> Partial:
        """The round as a backend returns it."""
        return Partial(self.total, self.visits, self.rejections, self.absent, summed=self.summed)

    def record(
        self,
        reported: Reported,
        quarantined: tuple[Sentence, ...],
        *,
        abandoned: bool,
        typical_norm: float | None = None,
    ) -> RoundRecord:
        """The record of the round.

        Args:
            reported: what the server's blocks reported, see `server.close`.
            quarantined: the clients whose quarantine begins after it.
            abandoned: whether too few uploads were accepted.
            typical_norm: the quantile of the accepted norms that an adaptive bound follows.
        """
        seconds = monotonic() - self.began
        given = {"quarantined": quarantined, "abandoned": abandoned, "seconds": seconds, "nodes": self.nodes}
        given |= {"bound": self.bound, "typical_norm": typical_norm}
        given["uploads"] = {} if abandoned else self.uploads  # from the same model, the same bits may come again
        return RoundRecord.of(self.broadcast.round, self.partial(), reported, **given)

    def _enter(self, reply: Reply, clients: list[int], gate: Gate) -> tuple[Partial, Rejection | None]:
        """Read a reply and pass it through the gate: one client's upload, or the partial sum of several."""
        if reply.message is None:
            return self._blank(), gate.reject(clients[0], Reason.TREE, reply.why)
        limits = (self._limit(len(clients)), self._most * len(clients))
        answer = Answer.read(reply.message.content, *limits, read_version(reply.sent.content))
        if answer.round != self.broadcast.round:
            return self._blank(), gate.reject(clients[0], Reason.ROUND, f"round {answer.round}")
        node = reply.sent.metadata.dst_node_id
        if self.holdings is not None and answer.holds:
            self.holdings.note(node, answer.round)
        total = self._parts.setdefault(node, self.empty()) if self.share < 1 else self.total
        digest = _digest(answer.tensors)
        enter = self._enter_sum if len(clients) > 1 else self._enter_upload
        before = self.known.get(digest or "")
        if before is not None and before > self.broadcast.round:  # from the same model, the same bits may come again
            before = None
        part, refused = enter(answer, clients, gate, total, before)
        if refused is None and part.visits and digest is not None:
            self.uploads[digest] = node
        return part, refused

    def _enter_sum(
        self, answer: Answer, clients: list[int], gate: Gate, total: Total, before: int | None
    ) -> tuple[Partial, Rejection | None]:
        """Pass the sum of several clients through the gate, into a total; round `before` had the same displacements."""
        tensors, size = _check_index(answer.tensors), len(self.broadcast.params)
        part = self._blank().restore(tensors, answer.summary, size, part=self._part)
        _check_visits(part, part.total.clients)
        if before is not None and any(visit.norm for visit in part.visits):
            return part, gate.reject(clients[0], Reason.ROUND, _REPEATED.format(before))
        if (largest := max((visit.norm for visit in part.visits), default=0.0)) > (gate.limit or inf) * (1 + ROUNDING):
            return part, gate.reject(clients[0], Reason.SIZE, f"a norm of {largest:.3g}, bound {gate.limit:.3g}")
        return part, gate.merge(part.total, total, part.stated())

    def _enter_upload(
        self, answer: Answer, clients: list[int], gate: Gate, total: Total, before: int | None
    ) -> tuple[Partial, Rejection | None]:
        """Pass one client's upload through the gate, into a total; round `before` had the same displacement."""
        size = len(self.broadcast.params)
        part = self._blank().restore({"clients": torch.empty(0, dtype=torch.int64)}, answer.summary, size)
        matching = [visit for visit in part.visits if visit.client == clients[0] and isfinite(visit.seconds)]
        part.visits = []
        if not answer.tensors:
            return part, None
        upload = wire.restore(Upload, self.algorithm, answer.tensors, size, self._part)
        if before is not None and upload.delta.any():
            return part, gate.reject(clients[0], Reason.ROUND, _REPEATED.format(before))
        refused = gate.admit(upload, total)
        measured = gate.measured.get(clients[0], (0.0, 0.0))
        seconds, reports = (matching[0].seconds, matching[0].reports) if matching else (0.0, {})
        part.visits = [Visit(clients[0], upload.examples, upload.loss, seconds, *measured, upload.gradients, reports)]
        return part, refused

    def _blank(self) -> Partial:
        """A partial sum to read a reply into."""
        return Partial(self.empty())

    @property
    def _most(self) -> int:
        """The most characters per client in a summary."""
        return _SUMMARY + _FAMILY * sum("/" in name for _, block in self.algorithm.slots() for name in block.reports)

    def _limit(self, clients: int) -> int:
        """The most bytes that a reply about this many clients may have."""
        sent = self.broadcast
        return self.total.most_bytes(clients, sent.params, sent.buffers, sent.counts)


def _digest(tensors: Mapping[str, Tensor]) -> str | None:
    """A short hash of the displacements in a reply, or of their sums; None without any."""
    found, digest = [x for name, x in sorted(tensors.items()) if "delta" in name], blake2b(digest_size=8)
    for x in found:
        digest.update(x.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest() if found else None


def _check_index(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors of a partial sum, with a validated list of clients."""
    clients = tensors.get("clients")
    if clients is None or clients.dtype != torch.int64 or clients.dim() != 1:
        raise WireError("a partial sum without a list of clients")
    return tensors


def _check_visits(part: Partial, clients: Sequence[int]) -> None:
    """Validate that a node's summary is about the clients in its sum, with finite numbers."""
    if sorted(visit.client for visit in part.visits) != sorted(clients):
        raise WireError("the summary is not about the clients that were summed")
    if not all(isfinite(x) for visit in part.visits for x in (visit.loss, visit.seconds, visit.weight, visit.norm)):
        raise WireError("a number in the summary is not finite")
