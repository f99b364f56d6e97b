"""How uploads become one displacement: the two kinds of aggregation rule, each the owner of what it accumulates.

A rule opens its accumulator on every worker and on the server, and no other code depends on its kind: it takes uploads
in, merges with another worker's, travels as named tensors, and closes into the displacement of the round.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, cast

import torch
from torch import Tensor

from undrift.core.method.block import Block
from undrift.core.method.view import ServerView
from undrift.core.model.flat_model import Vector
from undrift.core.records.exact_sum import ExactSum, NamedSums
from undrift.core.records.place import home
from undrift.core.records.types import ClientT, SentT, ServerT, StateT, Upload, UpT

Weights = Mapping[str, float]
"""An upload's weights by name; the first, by which the mean is taken, is ""."""

Read = Callable[[Mapping[str, Tensor]], Upload]
"""Makes an upload of its named tensors."""

Write = Callable[[Upload], dict[str, Tensor]]
"""Takes an upload apart into named tensors."""


class Accumulator(ABC, Generic[ServerT, UpT]):
    """The uploads of a round as one aggregation rule needs them.

    Args:
        unweighted: whether other blocks need the unweighted sum of the displacements.
    """

    def __init__(self, unweighted: bool) -> None:
        self.unweighted = unweighted
        self.sums = NamedSums()

    @property
    def uploads(self) -> Sequence[Upload]:
        """The uploads held apart, if any."""
        return ()

    @abstractmethod
    def add(self, upload: Upload, up: UpT, weights: Weights) -> None:
        """Take in an upload that passed the gate; nothing of it is kept that the sender may overwrite."""

    def merge(self, other: Self) -> None:
        """Add what another worker holds."""
        self.sums.merge(other.sums)

    @abstractmethod
    def sizes(self, size: int) -> dict[str, int]:
        """The names and lengths of the sums that one upload or more give, for a model of a size."""

    def holds(self, clients: Sequence[int]) -> bool:
        """Whether what is held apart is of these clients, once each."""
        return True

    def room(self, clients: int) -> int:
        """How many uploads its form on the wire may hold, of so many clients."""
        return 0

    def flatten(self, write: Write, packed: bool = True, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Its form on the wire, with packed sums or plain ones, of which a mask chooses what travels."""
        return self.sums.flatten(packed, mask)

    def restore(
        self, tensors: Mapping[str, Tensor], size: int, read: Read, packed: bool = True, mask: Tensor | None = None
    ) -> None:
        """Fill this accumulator, empty so far, with what `flatten` gave elsewhere; KeyError if a sum is missing."""
        self.sums.restore(tensors, self.sizes(size), packed, mask)

    def shares(self, weight: float, clients: int) -> dict[str, float]:
        """The sums of displacements by name, and the sum of the magnitudes with which they enter each."""
        return {"sum": float(clients)} if "sum" in self.sums.sums else {}

    @abstractmethod
    def unweighted_sum(self, dtype: torch.dtype) -> Tensor:
        """The unweighted sum of the displacements, if it was requested."""

    @abstractmethod
    def mean_norm(self, weight: float) -> float:
        """The norm of the weighted mean of the displacements, from the sum of the weights, which is not zero."""

    @abstractmethod
    def named(self) -> dict[str, Any]:
        """What the server's view shows of the sums: see `ServerView`."""

    @abstractmethod
    def close(self, up: UpT, view: ServerView[ServerT]) -> tuple[Vector, ServerT]:
        """The displacement of the round, and what the rule then keeps on the server.

        Args:
            up: the unweighted sum of the rule's own uploads.
            view: the round, with the sums that `named` gave.
        """


class SumAccumulator(Accumulator[ServerT, UpT]):
    """Weighted sums: as large for ten thousand clients as for one."""

    def __init__(self, rule: "Summing[ServerT, Any, Any, UpT, Any]", unweighted: bool) -> None:
        super().__init__(unweighted)
        self.rule = rule

    def add(self, upload: Upload, up: UpT, weights: Weights) -> None:
        """Add the displacement, once for every sum."""
        self.sums.add("delta", upload.delta, weights[""])
        for name, weight in weights.items():
            if name in self.rule.extra:
                self.sums.add(f"extra.{name}", upload.delta, weight)
            if name:
                self.sums.add(f"weights.{name}", torch.tensor([weight], dtype=torch.float64))
        if self.unweighted and not self.rule.equal_weights:
            self.sums.add("sum", upload.delta)

    def sizes(self, size: int) -> dict[str, int]:
        """The weighted sum, the rule's further ones, and the unweighted one where it is another."""
        sizes = {"delta": size} | {f"extra.{name}": size for name in self.rule.extra}
        sizes |= {f"weights.{name}": 1 for name in (*self.rule.extra, *self.rule.scalars)}
        return sizes | ({"sum": size} if self.unweighted and not self.rule.equal_weights else {})

    def shares(self, weight: float, clients: int) -> dict[str, float]:
        """Further weights are taken to have one sign."""
        extra = {f"extra.{name}": abs(self.sums.number(f"weights.{name}")) for name in self.rule.extra}
        return super().shares(weight, clients) | {"delta": weight} | extra

    def unweighted_sum(self, dtype: torch.dtype) -> Tensor:
        """With equal weights, the weighted sum itself."""
        return self.sums.value("delta" if self.rule.equal_weights else "sum", dtype)

    def mean_norm(self, weight: float) -> float:
        """From the weighted sum."""
        return self.sums.norm("delta") / weight

    def named(self) -> dict[str, Any]:
        """The weighted sums, whose values are made when a rule reads them, and the sums of further weights."""
        named: dict[str, Any] = {"weighted": self.sums.sums["delta"]}
        for name in (*self.rule.extra, *self.rule.scalars):
            named[f"weights.{name}"] = self.sums.number(f"weights.{name}")
        return named | {f"extra.{name}": self.sums.sums[f"extra.{name}"] for name in self.rule.extra}

    def close(self, up: UpT, view: ServerView[ServerT]) -> tuple[Vector, ServerT]:
        """The rule's mean of the sums."""
        return self.rule.mean(up, view), view.state


class GatherAccumulator(Accumulator[ServerT, UpT]):
    """Every upload apart."""

    def __init__(self, rule: "Gathering[ServerT, Any, Any, UpT, Any]", unweighted: bool) -> None:
        super().__init__(unweighted)
        self.rule = rule
        self.entries: list[tuple[Upload, UpT]] = []
        self.weights: dict[int, float] = {}

    @property
    def uploads(self) -> Sequence[Upload]:
        """All uploads, as they came."""
        return [upload for upload, _ in self.entries]

    def add(self, upload: Upload, up: UpT, weights: Weights) -> None:
        """Keep a copy on the host: a worker writes the displacement of its next client over this one."""
        kept = home(upload)
        kept = replace(kept, delta=kept.delta.clone()) if kept.delta is upload.delta else kept
        self.entries.append((kept, home(up)))
        self.weights[upload.client] = weights[""]
        if self.unweighted:
            self.sums.add("sum", upload.delta)

    def merge(self, other: Self) -> None:
        """Add another worker's uploads."""
        super().merge(other)
        self.entries.extend(other.entries)
        self.weights |= other.weights

    def sizes(self, size: int) -> dict[str, int]:
        """Only the unweighted sum, if it was requested."""
        return {"sum": size} if self.unweighted else {}

    def holds(self, clients: Sequence[int]) -> bool:
        """Whether there is one upload of each of these clients."""
        return sorted(upload.client for upload in self.uploads) == sorted(clients)

    def room(self, clients: int) -> int:
        """One upload for each."""
        return clients

    def flatten(self, write: Write, packed: bool = True, mask: Tensor | None = None) -> dict[str, Tensor]:
        """The sums, and the uploads numbered."""
        out = super().flatten(write, packed, mask)
        for i, upload in enumerate(self.uploads):
            out.update({f"upload{i}/{name}": x for name, x in write(upload).items()})
        return out

    def restore(
        self, tensors: Mapping[str, Tensor], size: int, read: Read, packed: bool = True, mask: Tensor | None = None
    ) -> None:
        """The sums, and every upload."""
        super().restore(tensors, size, read, packed, mask)
        numbered: dict[str, dict[str, Tensor]] = {}
        for name, x in tensors.items():
            prefix, _, rest = name.partition("/")
            if prefix.startswith("upload"):
                numbered.setdefault(prefix, {})[rest] = x
        self.entries += [(one, cast(UpT, one.parts.get("aggregation"))) for one in map(read, numbered.values())]

    def unweighted_sum(self, dtype: torch.dtype) -> Tensor:
        """Summed beside the uploads."""
        return self.sums.value("sum", dtype)

    def mean_norm(self, weight: float) -> float:
        """From all uploads."""
        total = ExactSum(len(self.entries[0][0].delta))
        for upload, up in self.entries:
            known = self.weights.get(upload.client)
            total.add(upload.delta, self.rule.all_weights(upload, up, 0)[""] if known is None else known)
        return float(torch.linalg.vector_norm(total.value())) / weight

    def named(self) -> dict[str, Any]:
        """Nothing: the rule sees the uploads."""
        return {}

    def close(self, up: UpT, view: ServerView[ServerT]) -> tuple[Vector, ServerT]:
        """The rule's own way, over the uploads sorted by client."""
        entries = sorted(self.entries, key=lambda entry: entry[0].client)
        return self.rule.gather([upload for upload, _ in entries], [own for _, own in entries], view)


@dataclass(frozen=True)
class Aggregation(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """How uploads become one displacement: `Summing` or `Gathering`."""

    home = "aggregation"
    guards: ClassVar[bool] = False
    """Whether it limits what one bad upload does to the model, which other blocks may undo: `Algorithm.unprotected`."""

    extra: ClassVar[tuple[str, ...]] = ()
    """Names of further weighted sums of the displacements, beside that by the first weight, for `Summing`."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Names of further numbers of which only the sum is needed, for `Summing`."""

    def weigh(self, upload: Upload, up: UpT, age: int) -> float | Weights:
        """The weight of an upload: finite, not negative, known to the client itself.

        It also weighs running statistics. Weighted sums resolve 2^-60: keep weights near one. A rule with `extra` or
        `scalars` returns a dict: the weight under "", the others under their names, finite and for runs with a `bound`
        of one sign.

        Args:
            upload: the upload.
            up: the rule's own part of it.
            age: how many rounds older than the current model is the one it started from; 0 in synchronous rounds.
        """
        return 1.0

    def all_weights(self, upload: Upload, up: UpT, age: int) -> Weights:
        """What `weigh` gave as a dict with the declared names."""
        found = self.weigh(upload, up, age)
        weights = found if isinstance(found, Mapping) else {"": found}
        if set(weights) != {"", *self.extra, *self.scalars}:
            raise TypeError(
                f"{type(self).__name__}.weigh returned weights for {sorted(weights)}, and extra and scalars declare "
                f"{sorted({'', *self.extra, *self.scalars})}: return one of each"
            )
        return weights

    def check(self, up: UpT, examples: int, weights: Weights) -> None:
        """Raise a `ValueError` if an upload's own part and weights cannot be honest, or their sums over several.

        Only what is true of every sum of honest uploads may be demanded, for example that a number is not negative.
        """

    def open(self, unweighted: bool) -> Accumulator[ServerT, UpT]:
        """An empty accumulator, with the unweighted sum of the displacements if other blocks need it."""
        raise NotImplementedError(f"{type(self).__name__}: derive a rule from Summing or Gathering")


@dataclass(frozen=True)
class Summing(Aggregation[ServerT, ClientT, SentT, UpT, StateT]):
    """A rule that needs sums only, as secure aggregation gives them. This base weighs all uploads alike."""

    equal_weights: ClassVar[bool] = False
    """Whether every weight is one, so that the weighted sum is the unweighted one."""

    def mean(self, up: UpT, view: ServerView[ServerT]) -> Vector:
        """The displacement of the round from the sums of the view; `up` is the sum of the rule's own uploads."""
        return view.weighted_mean

    def open(self, unweighted: bool) -> Accumulator[ServerT, UpT]:
        """Sums."""
        return SumAccumulator(self, unweighted)


@dataclass(frozen=True)
class Gathering(Aggregation[ServerT, ClientT, SentT, UpT, StateT]):
    """A rule that needs every upload of a round at once."""

    def gather(
        self, uploads: Sequence[Upload], ups: Sequence[UpT], view: ServerView[ServerT]
    ) -> tuple[Vector, ServerT]:
        """The displacement of the round, and what the block then keeps on the server.

        Args:
            uploads: all uploads, sorted by client; each has the round of the model it started from.
            ups: the rule's own part of each.
            view: the round.
        """
        raise NotImplementedError(f"{type(self).__name__} gathers and must implement gather()")

    def open(self, unweighted: bool) -> Accumulator[ServerT, UpT]:
        """A list."""
        return GatherAccumulator(self, unweighted)


@dataclass(frozen=True)
class Robust(Gathering[ServerT, ClientT, SentT, UpT, StateT]):
    """A rule that bears with some bad uploads."""

    guards = True
