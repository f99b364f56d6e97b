"""Exact, associative sums of uploads: the same bits for any number of workers, any grouping and any order.

A number is cut into a multiple of 2^-10 and a remainder that is a multiple of 2^-60. Both parts are held in double
precision, in which sums of such multiples are exact while they stay below 2^43 (the gate sees to it), so addition is
associative and commutative, and only the last conversion rounds. Own code: no library sums tensors reproducibly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from undrift.core.algorithm import Algorithm
from undrift.core.types import Cohort, Declared, Local, Summed, Tree, Upload, Weighted, kinds, slope
from undrift.core.vector import Vector

LIMIT = 2.0**40
"""The largest sum of magnitudes, per element, that is surely exact."""

_COARSE = 1.5 * 2.0**42  # adding and subtracting it rounds to a multiple of 2^-10
_FINE = 1.5 * 2.0**-8  # ... of 2^-60
_CARRY = 4  # additions between two carries; two sums of fine parts stay exact below 2^-7, sixteen additions
_CHUNK = 1 << 15  # elements at a time: the temporaries stay in the processor's cache


class ExactSum:
    """The exact sum of tensors of one shape."""

    def __init__(self, size: int) -> None:
        self.coarse = torch.zeros(size, dtype=torch.float64)
        self.fine = torch.zeros(size, dtype=torch.float64)
        self._pending = 0

    @classmethod
    def of(cls, coarse: Tensor, fine: Tensor) -> "ExactSum":
        """A sum from its two parts."""
        out = cls(0)
        out.coarse, out.fine = coarse, fine
        return out

    def sound(self, most: float) -> bool:
        """Whether the parts are what additions of finite numbers, `most` in all, can give."""
        pieces = zip(torch.split(self.coarse, _CHUNK), torch.split(self.fine, _CHUNK), strict=True)
        return all(_multiples(c, 2.0**-10, most) and _multiples(f, 2.0**-60, 2.0**-8) for c, f in pieces)

    def add(self, x: Tensor, weight: float = 1.0) -> None:
        """Add weight * x, rounded once to a multiple of 2^-60."""
        self._pending = (self._pending + 1) % _CARRY
        if len(x) > 1:
            self._add_chunks(x, weight)
        elif len(x) == 1:  # the same in Python's floats, which are doubles, too
            number = float(x) * weight
            rounded = number + _COARSE - _COARSE
            self.coarse.add_(rounded)
            self.fine.add_(number - rounded + _FINE - _FINE)
            if self._pending == 0:
                self.carry()

    def _add_chunks(self, x: Tensor, weight: float) -> None:
        """Add weight * x, as much at a time as fits into the processor's cache."""
        whole = torch.empty(min(_CHUNK, len(x)), dtype=torch.float64)
        rest = torch.empty_like(whole)
        chunks = zip(
            torch.split(x, _CHUNK), torch.split(self.coarse, _CHUNK), torch.split(self.fine, _CHUNK), strict=True
        )
        for part, coarse, fine in chunks:
            r, w = rest[: len(part)].copy_(part), whole[: len(part)]
            if weight != 1.0:
                r.mul_(weight)
            torch.add(r, _COARSE, out=w).sub_(_COARSE)
            coarse.add_(w)
            fine.add_(r.sub_(w).add_(_FINE).sub_(_FINE))
            if self._pending == 0:
                _carry(coarse, fine, w)

    def merge(self, other: "ExactSum") -> None:
        """Add another sum."""
        self.coarse.add_(other.coarse)
        self.fine.add_(other.fine)
        self.carry()

    def carry(self) -> None:
        """Move whole multiples of 2^-10 from the fine part to the coarse one, so that it never grows."""
        spare = torch.empty(min(_CHUNK, len(self.fine)), dtype=torch.float64)
        for coarse, fine in zip(torch.split(self.coarse, _CHUNK), torch.split(self.fine, _CHUNK), strict=True):
            _carry(coarse, fine, spare[: len(fine)])
        self._pending = 0

    def value(self) -> Tensor:
        """The sum, rounded once to double precision."""
        return self.coarse + self.fine


@dataclass(eq=False)
class Total:
    """The uploads added up so far: as large for ten thousand clients as for one, unless the method gathers."""

    algorithm: Algorithm
    local: Local
    lr: float
    clients: list[int] = field(default_factory=list)
    sums: dict[str, ExactSum] = field(default_factory=dict)
    counts: Tensor | None = None
    uploads: list[Upload] = field(default_factory=list)

    def add(self, upload: Upload) -> None:
        """Add an upload that passed the gate."""
        a = self.algorithm
        weight = a.aggregation.weigh(upload)
        self.clients.append(upload.client)
        self._sum("weight", torch.tensor([weight], dtype=torch.float64))
        if a.aggregation.gathers:
            self.uploads.append(upload)
        else:
            self._sum("delta", upload.delta, weight)
            for name, extra in a.aggregation.weights(upload).items():
                self._sum(f"extra.{name}", upload.delta, extra)
                self._sum(f"weights.{name}", torch.tensor([extra], dtype=torch.float64))
        self._sum("buffers", upload.buffers, weight)
        if self._uses("sum") and not a.aggregation.plain:
            self._sum("sum", upload.delta)
        if self._uses("slope"):
            self._sum("paced", upload.delta, 1 / (upload.steps * self.lr))
        for slot, block in a.slots():
            for name, x in _fields(block.Up, upload.parts.get(slot)):
                self._sum(f"{slot}.{name}", x)
        self.counts = upload.counts if self.counts is None else torch.maximum(self.counts, upload.counts)

    def merge(self, other: "Total") -> None:
        """Add the total of other clients."""
        twice = set(self.clients) & set(other.clients)
        if twice:
            raise ValueError(f"merge: client {min(twice)} is in both totals; a client counts once")
        self.clients.extend(other.clients)
        self.uploads.extend(other.uploads)
        for name, total in other.sums.items():
            if name not in self.sums:
                self.sums[name] = ExactSum(len(total.fine))
            self.sums[name].merge(total)
        if other.counts is not None:
            self.counts = other.counts if self.counts is None else torch.maximum(self.counts, other.counts)

    def flatten(self) -> dict[str, Tensor]:
        """The total as named tensors, for the wire; what it gathered travels as uploads."""
        out = {"clients": torch.tensor(self.clients, dtype=torch.int64)}
        for name, total in self.sums.items():
            total.carry()
            out[f"{name}/coarse"], out[f"{name}/fine"] = total.coarse, total.fine
        if self.counts is not None:
            out["counts"] = self.counts
        return out

    def restore(self, tensors: Mapping[str, Tensor], uploads: Sequence[Upload] = ()) -> "Total":
        """This total, filled with what `flatten` returned elsewhere; `Gate.merge` checks it before it is used."""
        self.clients = tensors["clients"].tolist()
        self.counts = tensors.get("counts")
        self.uploads = list(uploads)
        for name in {name.removesuffix("/coarse") for name in tensors if name.endswith("/coarse")}:
            self.sums[name] = ExactSum.of(tensors[f"{name}/coarse"], tensors[f"{name}/fine"])
        return self

    def expected(self, params: Vector, buffers: Tensor) -> dict[str, int]:
        """The names and lengths of the sums a total with one upload or more holds."""
        a = self.algorithm
        sizes = {"weight": 1, "buffers": len(buffers)}
        if not a.aggregation.gathers:
            sizes["delta"] = len(params)
            for name in a.aggregation.extra:
                sizes |= {f"extra.{name}": len(params), f"weights.{name}": 1}
        if self._uses("sum") and not a.aggregation.plain:
            sizes["sum"] = len(params)
        if self._uses("slope"):
            sizes["paced"] = len(params)
        for slot, block in a.slots():
            lengths = {"vector": len(params), "float": 1, "int": 1}
            for name, kind in kinds(block.Up).items():
                sizes[f"{slot}.{name}"] = block.sizes()[name] if kind == "array" else lengths[kind]
        return sizes

    def weight(self) -> float:
        """The sum of the weights."""
        return self._number("weight") if self.clients else 0.0

    def norm(self) -> float:
        """The norm of the weighted mean of the displacements."""
        weight = self.weight()
        if weight == 0:
            return 0.0
        total = self.sums.get("delta")
        if total is None:
            total = ExactSum(len(self.uploads[0].delta))
            for upload in self.uploads:
                total.add(upload.delta, self.algorithm.aggregation.weigh(upload))
        return float(torch.linalg.vector_norm(total.value())) / weight

    def gathered(self) -> list[Upload]:
        """The uploads held apart, sorted by client."""
        return sorted(self.uploads, key=lambda upload: upload.client)

    def close(self, w0: Vector, cohort: Cohort, delta: Vector | None = None) -> Summed:
        """The sums as the server step wants them, in the model's precision.

        Args:
            w0: the model that was broadcast.
            cohort: who took part.
            delta: the displacement of the round, if the method gathers.
        """
        a, dtype = self.algorithm, w0.dtype

        def value(name: str) -> Tensor:
            return self.sums[name].value().to(dtype)

        parts = {slot: self._part(slot, block.Up, dtype) for slot, block in a.slots() if block.Up is not None}
        if delta is None:
            delta = a.aggregation.mean(self._weighted(parts.get("aggregation")), cohort)
        delta = delta.to(dtype)
        total = value("delta" if a.aggregation.plain else "sum") if self._uses("sum") else None
        steep = None
        if self._uses("slope"):
            moved = delta if total is None else total
            steep = slope(value("paced"), moved, w0, self.lr, self.local.weight_decay, cohort.size)
        buffers = (self.sums["buffers"].value() / (self.weight() or 1.0)).to(dtype)
        assert self.counts is not None
        return Summed(delta=delta, sum=total, slope=steep, buffers=buffers, counts=self.counts, parts=parts)

    def _weighted(self, up: Tree) -> Weighted:
        """The weighted sums, rounded once to double precision."""
        names = self.algorithm.aggregation.extra
        return Weighted(
            delta=self.sums["delta"].value(),
            weight=self.weight(),
            extra={name: self.sums[f"extra.{name}"].value() for name in names},
            weights={name: self._number(f"weights.{name}") for name in names},
            up=up,
        )

    def _number(self, name: str) -> float:
        """A sum of numbers."""
        return float(self.sums[name].value())

    def _uses(self, name: str) -> bool:
        """Whether a sum is needed; slopes without weight decay need the plain sum, too."""
        used = self.algorithm.uses
        return name in used or (name == "sum" and "slope" in used and self.local.weight_decay > 0)

    def _sum(self, name: str, x: Tensor, weight: float = 1.0) -> None:
        """Add to one of the sums."""
        if name not in self.sums:
            self.sums[name] = ExactSum(len(x))
        self.sums[name].add(x, weight)

    def _part(self, slot: str, declared: Declared, dtype: torch.dtype) -> Tree:
        """The sum of a block's uploads, as its own tree."""
        assert declared is not None
        values: list[Any] = []
        for name, kind in kinds(declared).items():
            x = self.sums[f"{slot}.{name}"].value()
            values.append(float(x) if kind == "float" else int(x) if kind == "int" else x.to(dtype))
        tree: Tree = declared(*values)
        return tree


def _carry(coarse: Tensor, fine: Tensor, spare: Tensor) -> None:
    """Move whole multiples of 2^-10 from one part of a sum to the other."""
    carried = torch.add(fine, _COARSE, out=spare).sub_(_COARSE)
    coarse.add_(carried)
    fine.sub_(carried)


def _multiples(x: Tensor, unit: float, most: float) -> bool:
    """Whether all values are multiples of a unit, a power of two, and not larger than `most`; NaN is not."""
    if len(x) == 0:
        return True
    low, high = torch.aminmax(x)
    units = x / unit
    return -most <= float(low) and float(high) <= most and torch.equal(units, units.round())


def _fields(declared: Declared, tree: Tree) -> Iterable[tuple[str, Tensor]]:
    """The fields of an uploaded tree as tensors of one axis."""
    for (name, kind), x in zip(kinds(declared).items(), tree or (), strict=True):
        yield name, x.reshape(-1) if kind in ("vector", "array") else torch.tensor([x], dtype=torch.float64)
