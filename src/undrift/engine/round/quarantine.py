"""Quarantine: a client whose uploads are rejected, or that fails, again and again is left out for some rounds.

Who is in quarantine follows from the rejections of earlier rounds alone. So a resumed run that knows these rejections,
from its audit log, leaves out the same clients as an uninterrupted one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import Field

from undrift.core.records.rejection import Reason, Rejection
from undrift.util.naming.binding import check_fields

_NO_FAULT = {
    Reason.EMPTY,
    Reason.IDLE,
    Reason.FAILED,
    Reason.VERSION,
    Reason.SHARE,
    Reason.MASKED,
    Reason.STALE,
}
"""Reasons that are no fault of an upload: none came, it has too much weight or is old, or its round was abandoned."""

ABSENT = "ABSENT"
"""The name of a missing reply, among those of the reasons of rejections."""

WITHDRAWN = "it has left the run"
"""Why a client that was withdrawn is absent."""

_FAILURES = {Reason.FAILED.name: Reason.FAILED.value, ABSENT: "its node sent no reply"}
"""What counts as a failure, and why a client is left out for it."""

_DOUBLINGS = 20
_NEVER = 1 << 62

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


@dataclass(frozen=True)
class Quarantine:
    """When a client is left out, and for how long: the table `quarantine` of run files has these fields and rules.

    Uploads that the gate rejected count. If `failures` is given, failed trainings and orders that a node did not reply
    to count too, apart from these. A client without examples, or one that no node hosts, is not quarantined.

    Args:
        after: how many rejected uploads lead to quarantine.
        rounds: how many rounds the first quarantine lasts; every further one of the same client lasts twice as long.
        within: the rejections count together if they are in this many consecutive rounds; None counts all.
        failures: how many failures lead to quarantine; None has no quarantine for them.
    """

    after: Count = 3
    rounds: Count = 10
    within: Count | None = None
    failures: Count | None = None

    @check_fields
    def __post_init__(self) -> None:
        """The annotations have all rules."""


class Sentence(NamedTuple):
    """One client's quarantine.

    Args:
        client: the client.
        until: the round, counted from 1, in which it may take part again.
        reason: why its last upload was rejected, or that it has left the run.
    """

    client: int
    until: int
    reason: str

    def __str__(self) -> str:
        """As in a record of absent clients."""
        return self.reason if self.until == _NEVER else f"quarantined until round {self.until}: {self.reason}"


@dataclass
class QuarantineList:
    """The rejections of a run, and who is in quarantine because of them. Rounds are counted from 0 here.

    Args:
        rule: when a client is left out; None has no quarantine.
        withdrawn: the clients that have left the run: they are always left out.
    """

    rule: Quarantine | None = None
    withdrawn: set[int] = field(default_factory=set)
    _faults: dict[int, dict[int, str]] = field(default_factory=dict)  # client -> round -> name of the reason

    def take(self, round: int, rejections: Iterable[Rejection], absent: Iterable[int] = ()) -> tuple[Sentence, ...]:
        """Add the rejections of a round and return the quarantines that begin with it, sorted by client.

        What is known about this round and later ones is replaced, so that a round may be repeated.

        Args:
            round: the round.
            rejections: those of the round.
            absent: the clients whose node did not reply.
        """
        if self.rule is None:
            return ()
        self.rewind(round)
        for client, name in ((r.client, r.reason.name) for r in rejections):
            self._add(round, client, name)
        for client in absent:
            self._add(round, client, ABSENT)
        new = [self._last(client, round + 1) for client, faults in self._faults.items() if round in faults]
        return tuple(sorted(sentence for begun, sentence in filter(None, new) if begun == round))

    def restore(self, rejections: Iterable[tuple[int, int, str]], round: int) -> None:
        """Take over the rejections of the rounds before this one, as a resumed run finds them in its audit log.

        Args:
            rejections: round, client and name of the reason, each; `ABSENT` is that of a missing reply.
            round: the next round to run.
        """
        self._faults.clear()
        if self.rule is None:  # a log need not be read
            return
        for at, client, name in rejections:
            if at < round:
                self._add(at, client, name)

    def rewind(self, round: int) -> None:
        """Forget this round and all later ones."""
        for client, faults in list(self._faults.items()):
            self._faults[client] = kept = {at: why for at, why in faults.items() if at < round}
            if not kept:
                del self._faults[client]

    def out(self, round: int) -> Mapping[int, Sentence]:
        """The clients that are left out of a round."""
        found = (self._last(client, round) for client in self._faults) if self.rule is not None else ()
        left = {client: Sentence(client, _NEVER, WITHDRAWN) for client in sorted(self.withdrawn)}
        return {s.client: s for _, s in filter(None, found) if round < s.until - 1} | left

    def _add(self, round: int, client: int, name: str) -> None:
        """Add what happened to a client in a round, if it counts."""
        if name in _FAILURES or (name in Reason.__members__ and Reason[name] not in _NO_FAULT):
            self._faults.setdefault(client, {})[round] = name

    def _last(self, client: int, round: int) -> tuple[int, Sentence] | None:
        """A client's latest quarantine that began before a round, with the round of its last rejection or failure."""
        assert self.rule is not None
        faults, failures = dict[int, str](), dict[int, str]()
        for at, name in sorted(self._faults[client].items()):
            if at < round:
                (failures if name in _FAILURES else faults)[at] = _FAILURES.get(name) or Reason[name].value
        found = [self._latest(client, faults, self.rule.after)]
        if self.rule.failures is not None:
            found.append(self._latest(client, failures, self.rule.failures))
        return max(filter(None, found), default=None)

    def _latest(self, client: int, faults: Mapping[int, str], after: int) -> tuple[int, Sentence] | None:
        """A client's latest quarantine for some faults, by round, of which so many lead to one."""
        rule, counted, latest, times = self.rule, list[int](), None, 0
        assert rule is not None
        for at, why in faults.items():
            counted = [x for x in counted if rule.within is None or at - x < rule.within] + [at]
            if len(counted) >= after:
                until = at + 2 + rule.rounds * 2 ** min(times, _DOUBLINGS)
                latest, times, counted = (at, Sentence(client, until, why)), times + 1, []
        return latest
