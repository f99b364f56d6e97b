"""What may enter a sum: the only way in.

Every upload is checked before any rule sees it. One that fails is rejected with a typed reason and the round continues
without it; it leaves no trace in the sums.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from undrift.core.method.aggregation import Weights
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import Sums
from undrift.core.records.exact_sum import LIMIT, AnySum, ExactSum
from undrift.core.records.packed_sum import PackedSum
from undrift.core.records.rejection import Reason, RejectedError, Rejection
from undrift.core.records.types import Broadcast, Declared, Local, Tree, Upload, kinds
from undrift.core.server.partial_check import ROUNDING, Stated, check_stated
from undrift.core.server.total import Total, array_lengths
from undrift.util.naming.binding import is_whole

_log = logging.getLogger(__name__)


@dataclass
class Gate:
    """Checks the uploads of one round, and adds those that pass to a total.

    Args:
        algorithm: the method, which declares what an upload holds.
        local: the settings all clients share.
        broadcast: what was sent: gives the round, the length and the dtype.
        clients: the clients of the round whose uploads are checked here.
        bound: largest norm of a displacement; None allows any that can be summed exactly.
        most: largest number of examples a client may claim.
        examples: smaller limits of single clients.
        cohort: how many clients take part in the round everywhere; None if all come through here.
        seed: the run's seed, from which the number of steps of a client may follow.
        versions: rounds of earlier models from which an upload may have started, besides that of `broadcast`.
        late: how many rounds older than the current model is that of `broadcast`.

    `measured` holds the weight and the norm of every displacement admitted.
    """

    algorithm: Algorithm
    local: Local
    broadcast: Broadcast
    clients: Collection[int]
    bound: float | None = None
    most: int = 2**31
    cohort: int | None = None
    seed: int = 0
    versions: Collection[int] = ()
    late: int = 0
    examples: Mapping[int, int] = field(default_factory=dict)
    rejections: list[Rejection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clients = frozenset(self.clients)
        self._seen: set[int] = set()
        self._uploading = [(slot, block) for slot, block in self.algorithm.slots() if block.Up is not None]
        self.measured: dict[int, tuple[float, float]] = {}
        limits = [self.bound, self.algorithm.release.bound(self.broadcast.parts.get("release"))]
        self.limit = min((x for x in limits if x is not None), default=None)

    def total(self, version: int | None = None) -> Total:
        """An empty total for the uploads of a version; None is that of this round."""
        version = self.broadcast.round if version is None else version
        return Total(self.algorithm, self.local, version, self.broadcast.parts)

    def steps(self, client: int, examples: int) -> int:
        """How many local steps a client takes in this round; one without any is rejected, and the result is 0."""
        if examples == 0:
            self.reject(client, Reason.EMPTY)
            return 0
        steps = self._expected_steps(client, examples)
        if steps == 0:
            deadline = self.local.deadline
            self.reject(client, Reason.IDLE, "" if deadline is None else f"the deadline is {deadline:g} s")
        return steps

    def admit(self, upload: Upload, total: Total) -> Rejection | None:
        """Add an upload to the total of its version, or reject it with a reason."""
        try:
            self.measured[upload.client] = self._check(upload)
        except RejectedError as rejected:
            return self.reject(upload.client, rejected.reason, rejected.detail)
        self._seen.add(upload.client)
        total.add(upload, self._age(upload))
        return None

    def merge(self, part: Total, total: Total, stated: Mapping[int, Stated] | None = None) -> Rejection | None:
        """Add another node's partial total to a total, or reject all of it with a reason.

        The uploads behind it passed a gate on their node; here the sums themselves are checked, since the node may be
        broken or hostile.

        Args:
            part: the partial total.
            total: what it is added to.
            stated: what the node states about each client; None trusts it, bound included.
        """
        try:
            self._check_part(part)
            if stated is not None:
                check_stated(part, stated, self._expected_steps, self._most_examples, self.limit)
        except RejectedError as rejected:
            return self.reject(min(part.clients, default=-1), rejected.reason, f"partial sum: {rejected.detail}")
        self._seen.update(part.clients)
        total.merge(part)
        return None

    def _check_part(self, part: Total) -> None:
        """Who is in a partial total, and whether its sums can be sums."""
        for client in part.clients:
            if client not in self.clients:
                raise RejectedError(Reason.SENDER, f"client {client}")
            if client in self._seen:
                raise RejectedError(Reason.DUPLICATE, f"client {client}")
        if len(set(part.clients)) < len(part.clients):
            raise RejectedError(Reason.DUPLICATE)
        if not part.rule.holds(part.clients):
            raise RejectedError(Reason.TREE, "uploads")
        for upload in part.rule.uploads:
            self._check(upload)
        sent, averaged = self.broadcast, not self.algorithm.keeps_buffers(self.local)
        buffers, counts = (sent.buffers, sent.counts) if averaged else (sent.buffers[:0], sent.counts[:0])
        expected = part.expected(sent.params, buffers) if part.clients else {}
        sums = part.sums
        if set(sums) != set(expected):
            raise RejectedError(Reason.TREE, f"expected sums {sorted(expected)}")
        room = LIMIT / max(1, self.cohort or len(self.clients)) * len(part.clients)
        for name, size in expected.items():
            _check_sum(name, sums[name], size, room)
        if part.clients:
            _check_tensor("counts", part.counts, counts.shape, counts.dtype)
            if part.weight() < 0:
                raise RejectedError(Reason.WEIGHT)

    def reject(self, client: int, reason: Reason, detail: str = "") -> Rejection:
        """Reject a client, also one that sent nothing."""
        rejection = Rejection(client, reason, detail)
        level = logging.INFO if reason is Reason.IDLE else logging.WARNING  # a deadline may drop many, as planned
        _log.log(level, "round %d, %s", self.broadcast.round + 1, rejection)
        self.rejections.append(rejection)
        return rejection

    def _check(self, upload: Upload) -> tuple[float, float]:
        """All checks, the cheap ones first; gives the weight of the upload and the norm of its displacement."""
        if not is_whole(upload.client) or upload.client not in self.clients:
            raise RejectedError(Reason.SENDER)
        if upload.client in self._seen:
            raise RejectedError(Reason.DUPLICATE)
        if not is_whole(upload.round) or upload.round not in {self.broadcast.round, *self.versions}:
            raise RejectedError(Reason.ROUND, f"round {upload.round!r}, expected {self.broadcast.round}")
        self._check_counts(upload)
        self._check_layout(upload)
        room = LIMIT / (self.cohort or len(self.clients))
        for slot, block in self._uploading:
            for name, x in _tensors(block.Up, upload.parts.get(slot)):
                _check_values(f"{slot}.{name}", x, room)
        weights = self._weigh(upload)
        weight, scalars = weights[""], self.algorithm.aggregation.scalars
        if any(abs(weights[name]) > room for name in scalars):
            raise RejectedError(Reason.WEIGHT, f"{weights!r}, at most {room:.3g} can be summed exactly")
        largest = max([1.0, *(abs(x) for name, x in weights.items() if name not in scalars)])
        if largest > room:
            raise RejectedError(Reason.WEIGHT, f"{largest:.3g}, at most {room:.3g} can be summed exactly")
        norm = _check_values("delta", upload.delta, room / max(largest, self._pace(upload)))
        if self.limit is not None and norm > self.limit * (1 if self.limit == self.bound else 1 + ROUNDING):
            raise RejectedError(Reason.SIZE, f"norm {norm:.3g}, bound {self.limit:.3g}")
        _check_values("buffers", upload.buffers, room / max(weight, 1.0))
        return weight, norm

    def _most_examples(self, client: int) -> int:
        """The largest number of examples that a client may claim."""
        return min(self.most, self.examples.get(client, self.most))

    def _age(self, upload: Upload) -> int:
        """How many rounds older than the current model is the one that an upload started from."""
        return self.late + self.broadcast.round - upload.round

    def _expected_steps(self, client: int, examples: int, round: int | None = None) -> int:
        """How many local steps a client with so many examples takes in a round; None is this one."""
        return self.local.step_count(examples, client, self.broadcast.round if round is None else round, self.seed)

    def _check_counts(self, upload: Upload) -> None:
        """Examples and steps are whole numbers that fit together."""
        if not is_whole(upload.examples) or not 0 <= upload.examples <= self._most_examples(upload.client):
            most = self._most_examples(upload.client)
            raise RejectedError(Reason.COUNT, f"examples {upload.examples!r}, at most {most}")
        if upload.examples == 0:
            raise RejectedError(Reason.EMPTY)
        expected = self._expected_steps(upload.client, upload.examples, upload.round)
        if not expected:
            raise RejectedError(Reason.IDLE)
        if not is_whole(upload.steps) or upload.steps != expected:
            raise RejectedError(Reason.COUNT, f"steps {upload.steps!r}, expected {expected}")
        if not is_whole(upload.gradients) or not 0 <= upload.gradients <= self.most:
            raise RejectedError(Reason.COUNT, f"gradients {upload.gradients!r}")
        if not isinstance(upload.loss, float) or not isfinite(upload.loss):
            raise RejectedError(Reason.FINITE, "loss")

    def _check_layout(self, upload: Upload) -> None:
        """Names, shapes and dtypes are as declared."""
        sent, averaged = self.broadcast, not self.algorithm.keeps_buffers(self.local)
        _check_tensor("delta", upload.delta, sent.params.shape, sent.params.dtype)
        for name, like in (("buffers", sent.buffers), ("counts", sent.counts)):
            _check_tensor(name, getattr(upload, name), like.shape if averaged else torch.Size([0]), like.dtype)
        declared = {slot: block.Up for slot, block in self._uploading}
        if not isinstance(upload.parts, dict) or set(upload.parts) != set(declared):
            raise RejectedError(Reason.TREE, f"expected parts for {sorted(declared)}")
        for slot, tree in declared.items():
            if type(upload.parts[slot]) is not tree:
                raise RejectedError(Reason.TREE, f"{slot} must be a {getattr(tree, '__name__', tree)}")
            sizes = array_lengths(getattr(self.algorithm, slot), sent.parts.get(slot))
            for (name, kind), x in zip(kinds(tree).items(), upload.parts[slot] or (), strict=True):
                if kind in ("vector", "array"):
                    size = sent.params.numel() if kind == "vector" else sizes[name]
                    _check_tensor(f"{slot}.{name}", x, torch.Size([size]), sent.params.dtype)

    def _weigh(self, upload: Upload) -> Weights:
        """The upload's weights by name: finite numbers, whatever the upload claims."""
        rule, up = self.algorithm.aggregation, upload.parts.get("aggregation")
        try:
            weights = rule.all_weights(upload, up, self._age(upload))
            rule.check(up, upload.examples, weights)
            sound = all(map(isfinite, weights.values())) and weights[""] >= 0
        except (ArithmeticError, TypeError, ValueError) as error:
            raise RejectedError(Reason.WEIGHT, repr(error)) from error
        if not sound:
            raise RejectedError(Reason.WEIGHT, ", ".join(map(repr, weights.values())))
        return weights

    def _pace(self, upload: Upload) -> float:
        """The factor with which a displacement enters the sum of slopes."""
        if Sums.SLOPES not in self.algorithm.uses:
            return 1.0
        return 1 / (self.local.factors(upload.steps) * self.local.rate(upload.round))


def _check_tensor(name: str, x: Any, shape: torch.Size, dtype: torch.dtype) -> None:
    """A dense tensor of the declared shape and dtype."""
    if not isinstance(x, Tensor) or x.layout is not torch.strided or x.shape != shape:
        raise RejectedError(Reason.SHAPE, f"{name}: {tuple(getattr(x, 'shape', ()))}, expected {tuple(shape)}")
    if x.dtype != dtype:
        raise RejectedError(Reason.DTYPE, f"{name}: {x.dtype}, expected {dtype}")


def _check_sum(name: str, total: AnySum, size: int, most: float) -> None:
    """A sum of the declared length that finite numbers, `most` in all, can give."""
    if isinstance(total, ExactSum):
        for x in (total.coarse, total.fine):
            _check_tensor(name, x, torch.Size([size]), torch.float64)
    elif isinstance(total, PackedSum):
        _check_tensor(name, total.data, torch.Size([total.data.numel()]), torch.uint8)
        if not total.complete(size):
            raise RejectedError(Reason.SHAPE, f"{name}: {len(total.data)} bytes are no sum of {size} elements")
    elif total.size != size:
        raise RejectedError(Reason.SHAPE, f"{name}: {total.size} elements, expected {size}")
    if not total.sound(most):
        raise RejectedError(Reason.SIZE, name)


def _check_values(name: str, x: Tensor, most: float) -> float:
    """All values finite and small enough; returns the norm."""
    if x.numel() == 0:
        return 0.0
    norm = float(torch.linalg.vector_norm(x))
    if norm <= most:  # the usual case; not if it is NaN
        return norm
    largest = float(x.abs().max())
    if not isfinite(largest):
        raise RejectedError(Reason.FINITE, name)
    if largest > most:
        raise RejectedError(Reason.SIZE, name)
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))


def _tensors(declared: Declared, tree: Tree) -> list[tuple[str, Tensor]]:
    """The fields of a tree as tensors; a field of another kind than declared is rejected."""
    out = []
    for (name, kind), x in zip(kinds(declared).items(), tree or (), strict=True):
        if kind in ("vector", "array"):
            out.append((name, x))
        elif not isinstance(x, float if kind == "float" else int):
            raise RejectedError(Reason.TREE, f"{name} must be a {kind}, got {x!r}")
        else:
            out.append((name, torch.tensor([x], dtype=torch.float64)))
    return out
