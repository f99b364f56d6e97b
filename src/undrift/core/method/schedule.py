"""The kind of block that decides when the server steps and when clients begin, in the slot `schedule`."""

from dataclasses import dataclass
from typing import ClassVar

from undrift.core.method.block import Block
from undrift.core.records.types import ClientT, SentT, ServerT, StateT, UpT


@dataclass(frozen=True)
class Synchronous(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """When the server steps, and when clients begin. This base waits for the whole cohort, then draws the next one.

    `undrift.engine.round.scheduler` follows what it returns, in virtual time.
    """

    home = "schedule"
    overlaps: ClassVar[bool] = False
    """Whether clients still train while the server steps, so that uploads may start from earlier models."""

    def in_flight(self, cohort: int) -> int:
        """How many clients train at the same time, in a run with a cohort of this size."""
        return cohort

    def enough(self, cohort: int) -> int:
        """How many arrivals make a step of the server; the others are cancelled unless the schedule overlaps."""
        return cohort

    @property
    def refills(self) -> bool:
        """Whether another client begins as soon as one has arrived, rather than after the next step."""
        return False

    @property
    def oldest(self) -> int | None:
        """The largest age, in steps of the server, that an upload may have; None allows any."""
        return None

    def check(self, cohort: int | None) -> None:
        """Raise if it cannot run with a cohort of this size; None is one whose size is drawn in every round."""

    def visits(self, cohort: int) -> int:
        """How often one client may arrive between two steps, at most."""
        return self.enough(cohort) if self.refills else 1
