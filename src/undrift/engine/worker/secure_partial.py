"""What is summed securely: all sums of a round's uploads and a few numbers of its clients, as one vector."""

from collections.abc import Sequence

import torch

from undrift.core.records.exact_sum import LIMIT, ExactSum
from undrift.core.records.types import Broadcast
from undrift.core.server.total import Total
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.secure.residues import WIDTH, Residues

_NUMBERS = ("loss", "norm", "energy", "gradients")
"""What is summed of clients besides their uploads: the loss, the norm of the displacement, its square times the
weight, and the gradients."""


def vector_sizes(total: Total, broadcast: Broadcast) -> dict[str, int]:
    """The names and lengths of what is in the vector, in its order.

    Args:
        total: one of the round, which may be empty.
        broadcast: what was sent.
    """
    keeps = total.algorithm.keeps_buffers(total.local)
    sizes = total.expected(broadcast.params, broadcast.buffers[:0] if keeps else broadcast.buffers)
    return {**sizes, "numbers": len(_NUMBERS)}


def to_vector(partial: Partial, broadcast: Broadcast, cohort: int) -> Residues:
    """The sums of some clients, one at least, as a vector to be masked.

    Where clients add noise, the numbers are zero, since they have none.

    Args:
        partial: the result of these clients.
        broadcast: what was sent.
        cohort: how many clients take part in the round in all.
    """
    numbers, most = ExactSum(len(_NUMBERS)), LIMIT / cohort
    for visit in () if partial.total.algorithm.release.least else partial.visits:
        own = (visit.loss, visit.norm, visit.weight * visit.norm**2, float(visit.gradients))
        numbers.add(torch.tensor(own, dtype=torch.float64).clamp(-most, most))
    sums = {**partial.total.sums, "numbers": numbers}
    return Residues.of(sums[name] for name in vector_sizes(partial.total, broadcast))


def from_vector(vector: Residues, clients: Sequence[int], total: Total, broadcast: Broadcast) -> Partial:
    """The result of clients whose vectors were added: their sum, and no number of a single one.

    Args:
        vector: the sum of the vectors.
        clients: the clients.
        total: an empty total of the round, which is filled.
        broadcast: what was sent.
    """
    sizes = vector_sizes(total, broadcast)
    sums = dict(zip(sizes, vector.sums(sizes.values()), strict=True))
    numbers = sums.pop("numbers").value().tolist()
    own = total.rule.sizes(len(broadcast.params))
    total.clients, total.counts = list(clients), broadcast.counts[:0]  # counters are none, or stay with the clients
    total.common.sums = {name: x for name, x in sums.items() if name not in own}
    total.rule.sums.sums = {name: x for name, x in sums.items() if name in own}
    summed = {} if total.algorithm.release.least else dict(zip(_NUMBERS, numbers, strict=True))
    summed |= {"weight": total.weight(), "bytes_up": float(WIDTH * len(vector) * len(clients))}
    return Partial(total, [Visit(client, 0, 0.0, 0.0) for client in clients], summed=summed)
