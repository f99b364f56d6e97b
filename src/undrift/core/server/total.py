"""The uploads of a round, added up: what every block needs of them, and what the aggregation rule accumulates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from undrift.core.method.aggregation import Accumulator, Read, Write
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import AnyBlock
from undrift.core.method.view import Sums
from undrift.core.model.flat_model import Vector
from undrift.core.records.exact_sum import AnySum, NamedSums
from undrift.core.records.packed_sum import PackedSum, most_packed
from undrift.core.records.types import Declared, Local, Parts, Tree, Upload, kinds, slope


@dataclass(eq=False)
class Total:
    """The uploads added up so far: as large for ten thousand clients as for one, unless the rule gathers.

    Args:
        algorithm: the method.
        local: the settings all clients share.
        version: the round of the model that all these uploads started from; another version has a total of its own.
        sent: what the server sent for the blocks, from which lengths of arrays follow: see `array_lengths`.
    """

    algorithm: Algorithm
    local: Local
    version: int
    sent: Parts = field(default_factory=dict)
    clients: list[int] = field(default_factory=list)
    counts: Tensor | None = None

    def __post_init__(self) -> None:
        self.lr = self.local.rate(self.version)
        self.common = NamedSums()
        self.rule: Accumulator[Any, Any] = self.algorithm.aggregation.open(self.uses(Sums.DISPLACEMENTS))
        self._uploading = [(slot, block.Up) for slot, block in self.algorithm.slots() if block.Up is not None]

    @property
    def sums(self) -> dict[str, AnySum]:
        """Every exact sum by name."""
        return {**self.common.sums, **self.rule.sums.sums}

    def add(self, upload: Upload, age: int = 0) -> None:
        """Add an upload that passed the gate.

        Args:
            upload: the upload.
            age: how many rounds older than the current model is the one it started from.
        """
        add, up = self.common.add, upload.parts.get("aggregation")
        weights = self.algorithm.aggregation.all_weights(upload, up, age)
        weight = weights[""]
        self.clients.append(upload.client)
        add("weight", torch.tensor([weight], dtype=torch.float64))
        add("buffers", upload.buffers, weight)
        if self.uses(Sums.SLOPES):
            add("paced", upload.delta, 1 / (self.local.factors(upload.steps) * self.lr))
        if self._uneven:
            add("tail", upload.delta, self.local.share(upload.steps))
        for slot, declared in self._uploading:
            for name, x in _fields(declared, upload.parts.get(slot)):
                add(f"{slot}.{name}", x)
        self.rule.add(upload, up, weights)
        self.counts = upload.counts if self.counts is None else torch.maximum(self.counts, upload.counts)

    def merge(self, other: "Total") -> None:
        """Add the total of other clients that started from the same model."""
        if other.version != self.version:
            raise ValueError(f"merge: totals of versions {self.version} and {other.version}; each version has its own")
        twice = set(self.clients) & set(other.clients)
        if twice:
            raise ValueError(f"merge: client {min(twice)} is in both totals; a client counts once")
        self._absorb(other)

    def _absorb(self, other: "Total") -> None:
        self.clients.extend(other.clients)
        self.common.merge(other.common)
        self.rule.merge(other.rule)
        if other.counts is not None:
            self.counts = other.counts if self.counts is None else torch.maximum(self.counts, other.counts)

    def home(self) -> "Total":
        """This total with all its tensors on the host; uploads that a rule gathers are there already."""
        self.common.home()
        self.rule.sums.home()
        self.counts = None if self.counts is None else self.counts.cpu()
        return self

    def flatten(self, write: Write, packed: bool = True, mask: Tensor | None = None) -> dict[str, Tensor]:
        """The total as named tensors, for the wire.

        Args:
            write: takes an upload apart.
            packed: sums in their short form: see `NamedSums.flatten`.
            mask: what travels of them.
        """
        out = {"clients": torch.tensor(self.clients, dtype=torch.int64)}
        out |= {**self.common.flatten(packed, mask), **self.rule.flatten(write, packed, mask)}
        return out if self.counts is None else out | {"counts": self.counts}

    def restore(
        self,
        tensors: Mapping[str, Tensor],
        size: int,
        read: Read,
        packed: bool = True,
        mask: Tensor | None = None,
    ) -> "Total":
        """This total, filled with what `flatten` returned elsewhere; `Gate.merge` checks it before it is used.

        Args:
            tensors: what came.
            size: the length of the model.
            read: makes an upload of its tensors.
            packed: the form of sums that is expected.
            mask: what travels of them.

        Raises:
            KeyError: a tensor is missing, or one is there that was not declared.
        """
        self.clients = tensors["clients"].tolist()
        self.counts = tensors.get("counts")
        if self.clients:
            self.common.restore(tensors, self._common_sizes(size, 0), packed, mask)
            self.rule.restore(tensors, size, read, packed, mask)
        known = {"clients", "counts"}
        for name, total in self.sums.items():
            forms = ("sum",) if packed or isinstance(total, PackedSum) else ("coarse", "fine")
            known |= {f"{name}/{form}" for form in forms}
        apart = "upload" if self.rule.room(1) else None
        unknown = [name for name in tensors if name not in known and not (apart and name.startswith(apart))]
        if unknown:
            raise KeyError(f"{min(unknown)!r} is no sum of this method")
        return self

    def expected(self, params: Vector, buffers: Tensor) -> dict[str, int]:
        """The names and lengths of the sums a total with one upload or more holds."""
        return self._common_sizes(len(params), len(buffers)) | self.rule.sizes(len(params))

    def most_bytes(self, clients: int, params: Vector, buffers: Tensor, counts: Tensor) -> int:
        """The most bytes that the total of so many clients, or one client's upload, takes on the wire."""
        sizes = self.expected(params, buffers).values()
        sums = sum(map(most_packed, sizes)) + 8 * (len(counts) + clients)
        upload = 8 * (sum(sizes) + len(params) + len(counts)) + 4096
        return max(sums, upload) + self.rule.room(clients) * upload

    def weight(self) -> float:
        """The sum of the weights."""
        return self.common.number("weight")

    def check(self, examples: int) -> None:
        """Raise a `ValueError` if the rule's own part and weights cannot be those of clients with so many examples."""
        rule = self.algorithm.aggregation
        up = None if rule.Up is None else self._part("aggregation", rule.Up, torch.float64)
        weights = {name: self.rule.sums.number(f"weights.{name}") for name in (*rule.extra, *rule.scalars)}
        rule.check(up, examples, {"": self.weight(), **weights})

    def shares(self, steps: Sequence[int]) -> dict[str, float]:
        """Each sum of displacements by name, and the sum of the magnitudes with which they enter it.

        Args:
            steps: the number of local steps of each client.
        """
        shares = self.rule.shares(self.weight(), len(steps))
        if self.uses(Sums.SLOPES):
            shares["paced"] = sum(1 / (self.local.factors(count) * self.lr) for count in steps)
        if self._uneven:
            shares["tail"] = sum(map(self.local.share, steps))
        return shares

    def norm(self) -> float:
        """The norm of the weighted mean of the displacements."""
        weight = self.weight()
        return self.rule.mean_norm(weight) if weight else 0.0

    def parts(self, dtype: torch.dtype) -> dict[str, Tree]:
        """The unweighted sums of the blocks' uploads, in the model's precision."""
        return {slot: self._part(slot, declared, dtype) for slot, declared in self._uploading}

    def displacements(self, dtype: torch.dtype) -> Tensor:
        """The unweighted sum of the displacements, if a block uses it."""
        return self.rule.unweighted_sum(dtype)

    def slopes(self, start: Vector, released: Tensor | None = None, count: int = 0) -> Vector:
        """The unweighted sum of the clients' slopes, if a block uses it.

        Args:
            start: the shared part of the model that was broadcast in this version, zero elsewhere.
            released: the sum of the displacements as a private release gives it, of clients that take equally many
                steps; None takes the sum of the uploads.
            count: how many clients the released sum stands for.
        """
        dtype, steps = start.dtype, self.local.steps
        if released is not None:
            assert isinstance(steps, int)  # held by check_private
            moved = released.to(dtype)
            paced, tail = moved / (self.local.factors(steps) * self.lr), moved * self.local.share(steps)
            return slope(paced, moved, start, tail, self.local.weight_decay, count)
        paced = self.common.value("paced", dtype)
        decays = self.local.weight_decay > 0  # only then does a slope need more than `paced`
        moved = self.displacements(dtype) if decays else paced
        tail = self.common.value("tail", dtype) if self._uneven else self.lr * paced
        return slope(paced, moved, start, tail, self.local.weight_decay, len(self.clients))

    def buffers(self) -> Tensor:
        """The mean running statistics, in double precision."""
        return self.common.value("buffers") / (self.weight() or 1.0)

    def uses(self, wanted: Sums) -> bool:
        """Whether a sum is needed: a block declares it, or slopes with weight decay need the displacements, too.

        A private release gives one sum, from which all others follow.
        """
        used = Sums.NONE if self.algorithm.release.private else self.algorithm.uses
        decays = Sums.SLOPES in used and self.local.weight_decay > 0
        return wanted in used or (wanted is Sums.DISPLACEMENTS and decays)

    @property
    def _uneven(self) -> bool:
        """Whether slopes need a further sum: with weight decay and a schedule of the steps' rates."""
        local = self.local
        return self.uses(Sums.SLOPES) and local.weight_decay > 0 and local.step_schedule is not None

    def _common_sizes(self, size: int, buffers: int) -> dict[str, int]:
        """The names and lengths of the sums that every rule has."""
        sizes = {"weight": 1, "buffers": buffers}
        if self.uses(Sums.SLOPES):
            sizes["paced"] = size
        if self._uneven:
            sizes["tail"] = size
        for slot, block in self.algorithm.slots():
            lengths = {"vector": size, "float": 1, "int": 1}
            arrays = array_lengths(block, self.sent.get(slot))
            for name, kind in kinds(block.Up).items():
                sizes[f"{slot}.{name}"] = arrays[name] if kind == "array" else lengths[kind]
        return sizes

    def _part(self, slot: str, declared: Declared, dtype: torch.dtype) -> Tree:
        """The sum of a block's uploads, as its own tree."""
        assert declared is not None
        values: list[Any] = []
        for name, kind in kinds(declared).items():
            place = f"{slot}.{name}"
            number = self.common.number(place) if kind in ("float", "int") else 0.0
            values.append(
                number if kind == "float" else int(number) if kind == "int" else self.common.value(place, dtype)
            )
        tree: Tree = declared(*values)
        return tree


def add_versions(totals: Sequence[Total]) -> Total:
    """The totals of several versions as one, whose slopes are left to each; a single one with clients as it is."""
    totals = [total for total in totals if total.clients] or totals[:1]
    if len(totals) == 1:
        return totals[0]
    first = totals[0]
    whole = Total(first.algorithm, first.local, max(total.version for total in totals), first.sent)
    for total in totals:
        whole._absorb(total)
    return whole


def array_lengths(block: AnyBlock, sent: Tree) -> dict[str, int]:
    """The length of every Array that a block uploads: that of the one of the same name that was sent, or as declared.

    Args:
        block: the block.
        sent: what the server sent for it; None counts what is not declared as empty.
    """
    arrays = [name for name, kind in kinds(block.Up).items() if kind == "array"]
    given = {name: x.numel() for name in arrays if isinstance(x := getattr(sent, name, None), Tensor)}
    return {**dict.fromkeys(arrays, 0), **given, **block.sizes()}


def array_numbers(algorithm: Algorithm, parts: Mapping[str, Tree]) -> tuple[int, int]:
    """How many numbers a client receives and uploads in arrays, beside vectors as long as the model.

    Args:
        algorithm: the method.
        parts: what the server sends for the blocks, by slot.
    """
    down = up = 0
    for slot, block in algorithm.slots():
        sent = parts.get(slot)
        received = [getattr(sent, name) for name, kind in kinds(block.Sent).items() if kind == "array"]
        down += sum(x.numel() for x in received)
        up += sum(array_lengths(block, sent).values())
    return down, up


def _fields(declared: Declared, tree: Tree) -> Iterable[tuple[str, Tensor]]:
    """The fields of an uploaded tree as tensors of one axis."""
    for (name, kind), x in zip(kinds(declared).items(), tree or (), strict=True):
        yield name, x.reshape(-1) if kind in ("vector", "array") else torch.tensor([x], dtype=torch.float64)
