"""Quarantine: a client whose uploads are rejected again and again is left out for some rounds.

Who is in quarantine follows from the rejections of earlier rounds alone. So a resumed run that knows these rejections,
from its audit log, leaves out the same clients as an uninterrupted one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import Field

from undrift.core.records.rejection import Reason, Rejection
from undrift.util.naming.binding import check_fields

_NO_FAULT = {Reason.EMPTY, Reason.IDLE, Reason.FAILED}
"""Reasons that are no fault of an upload: there was none."""

_DOUBLINGS = 20

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


@dataclass(frozen=True)
class Quarantine:
    """When a client is left out, and for how long: the table `quarantine` of run files has these fields and rules.

    Only uploads that the gate rejected count. A client that is absent, has no examples or fails in training is not
    quarantined.

    Args:
        after: how many rejected uploads lead to quarantine.
        rounds: how many rounds the first quarantine lasts; every further one of the same client lasts twice as long.
        within: the rejections count together if they are in this many consecutive rounds; None counts all.
    """

    after: Count = 3
    rounds: Count = 10
    within: Count | None = None

    @check_fields
    def __post_init__(self) -> None:
        """The annotations have all rules."""


class Sentence(NamedTuple):
    """One client's quarantine.

    Args:
        client: the client.
        until: the round, counted from 1, in which it may take part again.
        reason: why its last upload was rejected.
    """

    client: int
    until: int
    reason: str

    def __str__(self) -> str:
        """As in a record of absent clients."""
        return f"quarantined until round {self.until}: {self.reason}"


@dataclass
class QuarantineList:
    """The rejections of a run, and who is in quarantine because of them. Rounds are counted from 0 here.

    Args:
        rule: when a client is left out; None has no quarantine.
    """

    rule: Quarantine | None = None
    _faults: dict[int, dict[int, str]] = field(default_factory=dict)

    def take(self, round: int, rejections: Iterable[Rejection]) -> tuple[Sentence, ...]:
        """Add the rejections of a round and return the quarantines that begin with it, sorted by client.

        What is known about this round and later ones is replaced, so that a round may be repeated.
        """
        if self.rule is None:
            return ()
        self.rewind(round)
        for rejection in rejections:
            if rejection.reason not in _NO_FAULT:
                self._faults.setdefault(rejection.client, {})[round] = rejection.reason.value
        new = [self._last(client, round + 1) for client, faults in self._faults.items() if round in faults]
        return tuple(sorted(sentence for begun, sentence in filter(None, new) if begun == round))

    def restore(self, rejections: Iterable[tuple[int, int, str]], round: int) -> None:
        """Take over the rejections of the rounds before this one, as a resumed run finds them in its audit log.

        Args:
            rejections: round, client and name of the reason, each.
            round: the next round to run.
        """
        self._faults.clear()
        if self.rule is None:  # a log need not be read
            return
        for at, client, name in rejections:
            if at < round and name in Reason.__members__ and Reason[name] not in _NO_FAULT:
                self._faults.setdefault(client, {})[at] = Reason[name].value

    def rewind(self, round: int) -> None:
        """Forget this round and all later ones."""
        for client, faults in list(self._faults.items()):
            self._faults[client] = kept = {at: why for at, why in faults.items() if at < round}
            if not kept:
                del self._faults[client]

    def out(self, round: int) -> Mapping[int, Sentence]:
        """The clients that are left out of a round."""
        found = (self._last(client, round) for client in self._faults) if self.rule is not None else ()
        return {s.client: s for _, s in filter(None, found) if round < s.until - 1}

    def _last(self, client: int, round: int) -> tuple[int, Sentence] | None:
        """A client's latest quarantine that began before a round, with the round of its last rejection."""
        rule, faults, counted, latest, times = self.rule, self._faults[client], list[int](), None, 0
        assert rule is not None
        for at in sorted(at for at in faults if at < round):
            counted = [x for x in counted if rule.within is None or at - x < rule.within] + [at]
            if len(counted) >= rule.after:
                until = at + 2 + rule.rounds * 2 ** min(times, _DOUBLINGS)
                latest, times, counted = (at, Sentence(client, until, faults[at])), times + 1, []
        return latest
