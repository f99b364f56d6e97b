"""Rules that trust the uploads with the nearest neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from undrift.blocks.aggregation.median import coordinate_median
from undrift.blocks.aggregation.rows import check_bad, count_tolerated, mean, norm
from undrift.core import Robust, ServerView, Upload, Vector


def distances(uploads: Sequence[Upload]) -> Tensor:
    """The squared distance of every two displacements, pair by pair: it does not depend on where they stand."""
    apart = torch.zeros(len(uploads), len(uploads), dtype=torch.float64)
    for i, j in combinations(range(len(uploads)), 2):
        apart[i, j] = apart[j, i] = norm(uploads[i].delta - uploads[j].delta) ** 2
    return apart


def scores(apart: Tensor, f: int) -> Tensor:
    """For each of m the sum of the m - f - 2 smallest squared distances to others, one at least."""
    others = apart.sort(dim=1).values[:, 1:]  # the first is the distance to itself
    return others[:, : max(1, len(apart) - f - 2)].sum(dim=1)


@dataclass(frozen=True)
class Krum(Robust):
    """server:  s_i = the sum of the m - f - 2 smallest ||delta_i - delta_j||^2, j != i
             delta = the mean of the q delta_i with the smallest s_i; ties go to the lowest client

    A cohort of m < 2f + 3 uploads takes f = (m - 3) // 2, or 0, and counts one neighbour at least.

    Args:
        f: how many uploads may be bad, a number or a share of the cohort below 1/2.
        q: how many are averaged, at most m - f - 2; None averages as many.
    """

    f: float = 0.1
    q: int | None = 1

    def __post_init__(self) -> None:
        check_bad("Krum", self.f)
        if self.q is not None and self.q < 1:
            raise ValueError(f"Krum: q must be 1 or more, or None for m - f - 2, got {self.q}")

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Score, then average the best."""
        count = len(uploads)
        f = count_tolerated(self.f, count, (count - 3) // 2)
        keep = max(1, min(count if self.q is None else self.q, count - f - 2))
        best = scores(distances(uploads), f).argsort(stable=True)[:keep].tolist()
        return mean([uploads[i] for i in best], [1.0] * keep), None


@dataclass(frozen=True)
class Bulyan(Robust):
    """server:  Krum chooses one of those left, m - 2f times, by max(1, m' - f - 2) neighbours among the m' left
             delta_j = the mean of the m - 4f chosen delta_ij nearest to their median; ties go to the first chosen

    A cohort of m < 4f + 3 uploads takes f = (m - 3) // 4, or 0.

    Args:
        f: how many uploads may be bad, a number or a share of the cohort below 1/2; 0 gives Uniform.
    """

    f: float = 0.1

    def __post_init__(self) -> None:
        check_bad("Bulyan", self.f)

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Choose whole uploads, then trim each coordinate."""
        f = count_tolerated(self.f, len(uploads), (len(uploads) - 3) // 4)
        chosen = [uploads[i] for i in chosen_by_krum(distances(uploads), len(uploads) - 2 * f, f)]
        rows = torch.stack([upload.delta for upload in chosen])
        away = (rows - coordinate_median(chosen)).abs()
        nearest = away.sort(dim=0, stable=True).indices[: len(chosen) - 2 * f]
        return rows.gather(0, nearest).sort(dim=0).values.mean(dim=0, dtype=torch.float64), None


def chosen_by_krum(apart: Tensor, count: int, f: int) -> list[int]:
    """Whom Krum chooses, one after the other, scoring those left anew each time."""
    left, chosen = list(range(len(apart))), list[int]()
    for _ in range(count):
        chosen.append(left.pop(int(scores(apart[left][:, left], f).argmin())))
    return chosen
