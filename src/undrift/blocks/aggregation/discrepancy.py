"""Weights that fall with the skew of a client's labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.aggregation.rows import mean
from undrift.core import End, Gathering, Needs, ServerView, Upload, Vector
from undrift.util.naming.ranges import NonNegative


class Skew(NamedTuple):
    """How far a client's labels are from the reference: one number, not the counts."""

    d: float


@dataclass(frozen=True)
class ByDiscrepancy(Gathering[None, None, None, Skew]):
    """client:  d_i = KL(P_i || T) or ||P_i - T||_2, P_i the shares of the classes in its data, T the reference
    server:  d_i <- d_i / sum_j d_j (kl only);   r_i = max(0, p_i - a d_i + b),   p_i = n_i / sum_j n_j
             delta = sum_i r_i delta_i / sum_i r_i;   by p_i if all r_i are 0

    Args:
        a: what skew costs.
        b: added to every weight.
        metric: "kl" or "l2".
        reference: the share of each class; () takes all classes alike.
    """

    needs = Needs(labels=True)
    reports = ("weight", "skew")

    a: NonNegative = 0.5
    b: NonNegative = 0.1
    metric: str = "kl"
    reference: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.metric not in ("kl", "l2"):
            raise ValueError(f'ByDiscrepancy: metric must be "kl" or "l2", got {self.metric!r}')
        if self.reference and (min(self.reference) <= 0 or abs(sum(self.reference) - 1) > 1e-6):
            raise ValueError(f"ByDiscrepancy: reference must be positive shares that sum to 1, got {self.reference}")

    def finish(self, state: None, end: End) -> tuple[Skew, None]:
        """Measure the skew of the client's labels."""
        d = skew(*self._shares(end), self.metric)
        end.report("skew", d)
        return Skew(d), None

    def weigh(self, upload: Upload, up: Skew, age: int) -> float:
        """The number of examples, which weighs running statistics; an impossible skew is rejected."""
        if up.d < 0:
            raise ValueError(f"ByDiscrepancy: a discrepancy is 0 or more, got {up.d}")
        return float(upload.examples)

    def gather(self, uploads: Sequence[Upload], ups: Sequence[Skew], view: ServerView[None]) -> tuple[Vector, None]:
        """Weigh by size less skew."""
        examples = [float(upload.examples) for upload in uploads]
        shares = self.shares(examples, [up.d for up in ups])
        view.report("weight", shares)
        return mean(uploads, shares), None

    def shares(self, examples: Sequence[float], skews: Sequence[float]) -> list[float]:
        """The weights of a cohort, which sum to one."""
        whole = (sum(skews) or 1.0) if self.metric == "kl" else 1.0
        sizes = [n / sum(examples) for n in examples]
        raw = [max(0.0, p - self.a * d / whole + self.b) for p, d in zip(sizes, skews, strict=True)]
        return [r / sum(raw) for r in raw] if any(raw) else sizes

    def _shares(self, end: End) -> tuple[Tensor, Tensor]:
        """The client's shares of the classes and the reference, equally long."""
        counts = end.label_counts()
        if counts is None:
            raise ValueError("ByDiscrepancy: the examples have no class labels; give the task label_counts(client)")
        if not self.reference and not end.knows_classes:
            raise ValueError(
                "ByDiscrepancy: the number of classes cannot be read from the batches; "
                "give the task label_counts(client), or reference= one share per class"
            )
        classes = len(self.reference) or len(counts)
        if len(counts) > classes:
            raise ValueError(f"ByDiscrepancy: reference has {classes} classes, the client's data {len(counts)}")
        own = torch.zeros(classes, dtype=torch.float64)
        own[: len(counts)] = counts.double() / counts.sum()
        return own, torch.tensor(self.reference or [1 / classes] * classes, dtype=torch.float64)


def skew(own: Tensor, reference: Tensor, metric: str) -> float:
    """KL(own || reference), with 0 log 0 = 0, or the distance of the two."""
    if metric == "l2":
        return float(torch.linalg.vector_norm(own - reference))
    return max(0.0, float(torch.special.xlogy(own, own / reference).sum()))
