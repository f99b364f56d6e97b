"""Over-selection: more clients begin than the cohort has, and the slowest are cancelled."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated

from pydantic import Field

from undrift.core import Release, Selection, Synchronous


@dataclass(frozen=True)
class OverSelected(Synchronous):
    """server:  ceil(factor m) clients begin;  it steps with the first m that arrive and cancels the others

    Args:
        factor: how many times the cohort m begins; 1 waits for all.
    """

    factor: Annotated[float, Field(ge=1, le=100, strict=True)] = 1.3

    def in_flight(self, cohort: int) -> int:
        """More than the cohort."""
        return ceil(self.factor * cohort - 1e-9)

    def check(self, cohort: int | None) -> None:
        """A cohort of fixed size."""
        if cohort is None:
            raise ValueError("OverSelected needs a cohort of fixed size: give cohort= instead of probability=")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Noise that is accounted for a random cohort, and selections of a whole cohort."""
        release, selection = others["release"], others["selection"]
        if isinstance(release, Release) and release.private:
            return f"takes the fastest clients, not a random cohort, for which {release!r} is accounted; leave it out"
        if type(selection) is not Selection:
            return f"draws its clients at random, and {selection!r} chooses them; leave one of them out"
        return ""
