"""What a node states about the clients behind its partial sum, compared with the sum itself.

A partial sum hides the uploads behind it. With a bound on displacements, every sum of them must stay below the bound
times the weights with which they enter. This holds the node, not each of its clients: one client may use up what the
bound allows all clients of its node.
"""

from collections.abc import Callable, Mapping
from math import isfinite, sqrt
from typing import NamedTuple

import torch

from undrift.core.records.exact_sum import AnySum
from undrift.core.records.rejection import Reason, RejectedError
from undrift.core.server.total import Total

ROUNDING = 1e-5
"""By how much of itself a norm or a weight may be off."""


class Stated(NamedTuple):
    """One client behind a partial sum.

    Args:
        examples: how many training examples it has.
        weight: the weight of its upload.
    """

    examples: int
    weight: float


def check_stated(
    part: Total,
    stated: Mapping[int, Stated],
    steps: Callable[[int, int], int],
    most: Callable[[int], int],
    bound: float | None,
) -> None:
    """Compare a partial sum with what its node states about each client; raises `RejectedError`.

    Args:
        part: the sum.
        stated: the clients behind it.
        steps: gives the number of local steps of a client with so many examples.
        most: gives the largest number of examples that a client may have.
        bound: the largest norm of a displacement; None allows any.
    """
    if set(stated) != set(part.clients):
        raise RejectedError(Reason.TREE, "the clients are not those that the node describes")
    if not stated:
        return
    equal = getattr(part.algorithm.aggregation, "equal_weights", False)
    counts = []
    for client, (examples, weight) in stated.items():
        if not 0 < examples <= most(client):
            raise RejectedError(Reason.COUNT, f"client {client}, examples {examples}, at most {most(client)}")
        counts.append(steps(client, examples))
        if not counts[-1]:
            raise RejectedError(Reason.IDLE, f"client {client}")
        if not isfinite(weight) or weight < 0 or (equal and weight != 1):
            raise RejectedError(Reason.WEIGHT, f"client {client}, {weight:.6g}")
    weight, whole = sum(weight for _, weight in stated.values()), part.weight()
    if abs(weight - whole) > ROUNDING * max(weight, whole):
        raise RejectedError(Reason.WEIGHT, f"{whole:.6g} in the sum, {weight:.6g} stated")
    try:
        part.check(sum(examples for examples, _ in stated.values()))
    except (ArithmeticError, ValueError) as error:
        raise RejectedError(Reason.WEIGHT, str(error)) from error
    if bound is not None:
        for name, share in part.shares(counts).items():
            norm, allowed = _norm(part.sums[name]), bound * share
            if norm > allowed * (1 + ROUNDING):
                raise RejectedError(
                    Reason.SIZE, f"{name}: norm {norm:.3g}, at most {allowed:.3g} with bound {bound:.3g}"
                )


def _norm(total: AnySum) -> float:
    """The norm of a sum, piece by piece."""
    return sqrt(sum(float(torch.linalg.vector_norm(coarse + fine)) ** 2 for coarse, fine in total.parts()))
