"""A bound on clients' displacements that follows the run: a multiple of a running quantile of accepted norms.

Few clients cannot move the median of many, so those that state or send large norms do not raise the bound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isfinite
from statistics import median

from torch import Tensor


@dataclass(frozen=True)
class AdaptiveBound:
    """The bound of a round is a multiple of the median, over the last rounds, of a quantile of the accepted norms.

    Args:
        multiple: the factor; honest clients on uneven data differ from their median by two to three.
        quantile: which quantile of the norms in a round; 0.5 is the median.
        window: how many of the last rounds count.
        first: the bound before any round; None takes the multiple of the model's own norm, at least of 1.
        least: the share of the largest bound after a round below which no later one falls: in a run that has nearly
            converged few clients still move the model, and theirs are no longer than displacements used to be.
    """

    multiple: float = 5.0
    quantile: float = 0.5
    window: int = 10
    first: float | None = None
    least: float = 0.25

    def __post_init__(self) -> None:
        first = self.first
        for valid, name, value, rule in (
            (1 < self.multiple < inf, "multiple", self.multiple, "a number above 1"),
            (0 < self.quantile <= 1, "quantile", self.quantile, "a fraction above 0, at most 1"),
            (self.window >= 1, "window", self.window, "1 round or more"),
            (first is None or 0 < first < inf, "first", first, "a positive norm; None takes the model's"),
            (0 <= self.least <= 1, "least", self.least, "a fraction"),
        ):
            if not valid:
                raise ValueError(f"AdaptiveBound: {name} must be {rule}, got {value}")


@dataclass
class RunningBound:
    """The bound of a run's next round. It follows from the norms of the rounds before, which a resumed run has in rows.

    Args:
        rule: how the bound follows from them; None has no bound.
        norms: the quantile of the accepted norms in each of the last rounds.
        largest: the largest median of these that there has been.
    """

    rule: AdaptiveBound | None = None
    norms: list[float] = field(default_factory=list)
    largest: float = 0.0

    def value(self, params: Tensor) -> float | None:
        """The bound of the next round.

        Args:
            params: the model's.
        """
        if self.rule is None:
            return None
        if not self.norms:
            return self.rule.first or self.rule.multiple * max(1.0, float(params.double().norm()))
        return self.rule.multiple * max(median(self.norms), self.rule.least * self.largest)

    def take(self, norms: Sequence[float]) -> float | None:
        """Add the accepted norms of a round; gives their quantile, None if there is none above 0."""
        if self.rule is None or not norms:
            return None
        found = sorted(norms)[max(0, ceil(self.rule.quantile * len(norms)) - 1)]
        self.restore([found])
        return found if found > 0 else None

    def restore(self, norms: Iterable[float]) -> None:
        """Add the quantiles of earlier rounds in their order, as `take` gave them."""
        if self.rule is None:
            return
        for norm in norms:
            if isfinite(norm) and norm > 0:
                self.norms = [*self.norms, norm][-self.rule.window :]
                self.largest = max(self.largest, median(self.norms))
