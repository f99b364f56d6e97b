"""Power-of-choice: of some candidates, those with the largest losses take part."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from undrift.core.method.selection import Candidates, Selection


@dataclass(frozen=True)
class PowerOfChoice(Selection):
    """server:  d candidates, drawn without replacement in proportion to n_i;  the m with the largest F_i(w) take part

    F_i(w) is the mean loss of the model that was broadcast over a candidate's training data, in evaluation mode; where
    a part of the model is private, of the model that the candidate would start from. Equal losses are ordered by the
    draws of the candidates. A list of weights in `sampling` is multiplied with n_i. Reference: Cho, Wang, Joshi: Client
    Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies, 2020.

    Args:
        candidates: d, at least the size of the cohort, m; with d = m the losses decide nothing.
        batches: how many batches a candidate evaluates, the cheaper variant; None takes all its data.
    """

    candidates: int = 20
    batches: int | None = None

    def __post_init__(self) -> None:
        for name, count in {"candidates": self.candidates, "batches": self.batches}.items():
            if count is not None and (not isinstance(count, int) or count < 1):
                raise ValueError(f"PowerOfChoice: {name} must be a whole number of 1 or more, got {count}")

    def select(self, candidates: Candidates) -> Sequence[int]:
        """The candidates with the largest losses; one whose loss is not a number comes first."""
        drawn = candidates.by_examples(self.candidates)
        losses = candidates.losses(drawn, self.batches)
        order = sorted(
            drawn, key=lambda client: inf if losses[client] != losses[client] else losses[client], reverse=True
        )
        return order[: candidates.size]
