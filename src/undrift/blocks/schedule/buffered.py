"""Schedules without a barrier: the server steps after some arrivals, while other clients still train."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from undrift.core import Release, Selection, Synchronous

Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Age = Annotated[int, Field(ge=0, le=10_000_000, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Overlapping(Synchronous):
    """A schedule under which clients train while the server steps.

    Args:
        concurrency: how many clients train at the same time, M; None is the cohort of the run.
        max_age: uploads older than so many steps of the server are rejected; None takes all.
    """

    overlaps = True

    concurrency: Count | None = None
    max_age: Age | None = None

    def in_flight(self, cohort: int) -> int:
        """As given, or the cohort."""
        return self.concurrency or cohort

    @property
    def oldest(self) -> int | None:
        """As given."""
        return self.max_age

    def check(self, cohort: int | None) -> None:
        """A cohort of fixed size that can fill the buffer."""
        name = type(self).__name__
        if cohort is None:
            raise ValueError(f"{name} needs a number of clients in flight: give cohort= instead of probability=")
        flying, size = self.in_flight(cohort), self.enough(cohort)
        if not self.refills and flying < size:
            raise ValueError(
                f'{name}: with restart="flush" at least as many clients must be in flight as the buffer takes, got '
                f"{flying} and size={size}; give a larger cohort or concurrency"
            )

    def refuses(self, others: Mapping[str, object]) -> str:
        """Noise that is accounted by rounds, and selections of a whole cohort."""
        release, selection = others["release"], others["selection"]
        if isinstance(release, Release) and release.private:
            return f"has no rounds of a known cohort, by which {release!r} is accounted; leave one of them out"
        if type(selection) is not Selection:
            return f"starts clients one by one, and {selection!r} chooses a cohort at once; leave one of them out"
        return ""


@dataclass(frozen=True)
class Buffered(Overlapping):
    """server:  steps after every `size` arrivals, K;  an upload's age is the number of steps since its client began

    Args:
        size: how many arrivals make a step.
        restart: when another client begins: on "arrival" of one, so that M is constant, or after the "flush".
        concurrency: how many clients train at the same time, M; None is the cohort of the run.
        max_age: uploads older than so many steps are rejected; None takes all.
    """

    size: Count = 10
    restart: Literal["arrival", "flush"] = "arrival"

    def enough(self, cohort: int) -> int:
        """The size of the buffer."""
        return self.size

    @property
    def refills(self) -> bool:
        """On arrival."""
        return self.restart == "arrival"


@dataclass(frozen=True)
class Asynchronous(Overlapping):
    """server:  steps after every arrival

    Args:
        concurrency: how many clients train at the same time; None is the cohort of the run.
        max_age: uploads older than so many steps are rejected; None takes all.
    """

    def enough(self, cohort: int) -> int:
        """One."""
        return 1
