"""The result of some clients of a round, and how it travels between processes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from undrift.core.method.part_vector import Part
from undrift.core.records.place import Place, home
from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.types import Upload
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.core.server.partial_check import Stated
from undrift.core.server.total import Total


@dataclass(frozen=True)
class Visit:
    """One client's part in one round.

    Args:
        client: the client's number.
        examples: how many training examples it has.
        loss: its mean training loss.
        seconds: how long it took.
        weight: the weight of its upload in the mean.
        norm: the norm of its displacement.
        gradients: how many gradients its training evaluated.
        reports: what its blocks reported, as "slot.name".
    """

    client: int
    examples: int
    loss: float
    seconds: float
    weight: float = 0.0
    norm: float = 0.0
    gradients: int = 0
    reports: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class TrainedClient:
    """The result of one client's training.

    Args:
        upload: its upload, at the worker's place.
        seconds: how long it took; of clients that are trained together, a share of the group's time.
        reported: what its blocks reported.
    """

    upload: Upload
    seconds: float
    reported: Mapping[str, float]


@dataclass(eq=False)
class Partial:
    """The result of some clients of a round: the sum of their uploads, and the outcome of each client.

    Args:
        total: the sum of the accepted uploads.
        visits: the clients whose uploads were accepted.
        rejections: the clients whose uploads were rejected, or whose training failed, each with the reason.
        absent: the clients that sent no reply, each with the reason.
        cause: the exception behind the first failure, if the client was trained in this process.
        summed: after a secure sum, sums over the accepted clients of what `visits` has of each elsewhere.
    """

    total: Total
    visits: list[Visit] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    absent: dict[int, str] = field(default_factory=dict)
    cause: Exception | None = None
    summed: Mapping[str, float] = field(default_factory=dict)

    def admit(self, trained: TrainedClient, gate: Gate, place: Place) -> None:
        """Add a client's upload to the sum, if the gate accepts it.

        Args:
            trained: the client.
            gate: of the round.
            place: where the worker computes; without float64 there, sums are made on the host.
        """
        upload = trained.upload if place.exact else home(trained.upload)
        if gate.admit(upload, self.total) is None:
            client, counted = upload.client, (upload.examples, upload.loss, trained.seconds)
            self.visits.append(Visit(client, *counted, *gate.measured[client], upload.gradients, trained.reported))

    def merge(self, other: "Partial") -> None:
        """Add the outcome of other clients; their sums stay apart."""
        self.visits += other.visits
        self.rejections += other.rejections
        self.absent |= other.absent
        self.cause = self.cause or other.cause

    def take(self, gate: Gate, tensors: Mapping[str, Tensor], summary: str, size: int, packed: bool) -> list[Visit]:
        """Add a reply that another process of this run made to the sum; returns the visits that were accepted.

        Args:
            gate: of the round.
            tensors: the reply's named tensors: see `flatten`.
            summary: its line of JSON.
            size: the length of the model.
            packed: the form of its sums.
        """
        part = Partial(gate.total()).restore(tensors, summary, size, packed)
        accepted = part.visits if gate.merge(part.total, self.total) is None else []
        self.visits += accepted
        self.rejections += part.rejections
        return accepted

    def stated(self) -> dict[int, Stated]:
        """The numbers that are stated for the clients whose uploads are in the sum."""
        return {visit.client: Stated(visit.examples, visit.weight) for visit in self.visits}

    def flatten(self, packed: bool = True, part: Part | None = None) -> tuple[dict[str, Tensor], str]:
        """The reply as named tensors and a line of JSON.

        Args:
            packed: sums in their short form, for networks; plain sums are faster in memory that is shared.
            part: what travels of vectors in the short form; None is all.
        """
        write = partial(wire.flatten_short, algorithm=self.total.algorithm, part=part) if packed else wire.flatten
        tensors = self.total.flatten(write, packed, None if part is None else part.mask)
        summary = {
            "visits": [
                [v.client, v.examples, v.gradients, v.loss, v.seconds, v.weight, v.norm, dict(v.reports)]
                for v in self.visits
            ],
            "rejections": [[r.client, r.reason.name, _brief(r.detail)] for r in self.rejections],
        }
        return tensors, json.dumps(summary)

    def restore(
        self, tensors: Mapping[str, Tensor], summary: str, size: int, packed: bool = True, part: Part | None = None
    ) -> "Partial":
        """Fill this empty reply with what `flatten` returned in another process.

        Raises `WireError` if it cannot be read; `Gate.merge` then validates what was read.

        Args:
            tensors: the named tensors.
            summary: the line of JSON.
            size: the length of the model.
            packed: the form of sums that is expected.
            part: what travels of vectors; None is all.
        """
        algorithm, mask = self.total.algorithm, None if part is None else part.mask
        read = partial(wire.restore, Upload, algorithm, size=size, part=part)
        try:
            self.total.restore(tensors, size, read, packed, mask)
            facts = json.loads(summary)
            self.visits = [
                Visit(
                    int(client),
                    int(examples),
                    float(loss),
                    float(seconds),
                    float(weight),
                    float(norm),
                    int(gradients),
                    {str(name): float(x) for name, x in dict(reports).items()},
                )
                for client, examples, gradients, loss, seconds, weight, norm, reports in facts["visits"]
            ]
            self.rejections = [Rejection(int(c), Reason[r], str(d)[:1000]) for c, r, d in facts["rejections"]]
        except (KeyError, TypeError, ValueError) as error:
            raise wire.WireError(f"the reply cannot be read: {error!r}") from error
        return self


def _brief(text: str) -> str:
    """A text whose JSON a server accepts of one client; of a longer one the beginning and the end are left."""
    for most in (1000, 250):
        if len(text) > most:
            text = f"{text[: most // 4 - 5]} ... {text[-most // 4 * 3 :]}"
        if len(json.dumps(text)) <= 3000:
            break
    return text
