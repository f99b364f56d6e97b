"""The audit log: one line of JSON per event of a run; each line contains the hash of the line before.

A commit is written before the manifest of its checkpoint, which contains the hash of the event, and the end before the
files of the result. So what a run has stored is always in its log, and a checkpoint or a result that is not in the log
was not written by the run. With a key (`UNDRIFT_AUDIT_KEY`) every event has an Ed25519 signature of its hash as
well, which only the holder of the private key can make; the first event names the public key.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

from undrift.engine.round.quarantine import ABSENT
from undrift.engine.round.record import Record
from undrift.runs.folder.audit_copy import AuditCopy
from undrift.runs.folder.signature import KEY, AuditError, AuditKey, audit_key, read_key
from undrift.util.storage.files import append, read
from undrift.util.storage.jsonable import read_objects

VERSION = 2
"""Of the order of writes; version 1 wrote a checkpoint before its commit."""

RESTORE = "restore the run's folder from a backup, or start a new run"
CANARIES, INVERSION, MEMBERSHIP = AUDITS = ("canaries", "inversion", "membership")
"""The events of audits of a run's privacy: see `undrift.privacy`."""
_FIRST = "0" * 64
_LONGEST = 2000
_RIGHTS = ("withdraw", "hosts", "certificate", "operators")
SYNCED = ("start", "begin", "resume", "commit", "best", "measured", "end", *_RIGHTS)
"""The events that are on disk before the run continues; a power failure may take the last of the others."""
_PASSING = ("reject", "absent", "accept")


@dataclass(frozen=True)
class Log:
    """A log that was verified from its first line.

    Args:
        path: the file.
        hashes: those of all events, in order.
        events: by their hashes, without those about single clients and nodes.
        key: the public key whose signatures the events have; empty if they have none.
        checked: whether it is the key that was given to verify them with.
        size: bytes of whole lines; a line cut short by a crash follows.
    """

    path: Path
    hashes: tuple[str, ...] = ()
    events: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    key: str = ""
    checked: bool = False
    size: int = 0

    @property
    def head(self) -> str:
        """The hash of the last event, which depends on all events."""
        return self.hashes[-1] if self.hashes else _FIRST

    @property
    def last(self) -> dict[str, Any]:
        """The last event that is not about single clients and nodes; empty if there is none."""
        return self.events[next(reversed(list(self.events)))] if self.events else {}

    def of_kinds(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of some kinds, in order."""
        return [event for event in self.events.values() if event.get("event") in kinds]

    def current(self) -> bool:
        """Whether the last start of the run wrote its commits before its checkpoints."""
        opened = self.of_kinds("begin", "resume")
        return bool(opened) and opened[-1].get("log") == VERSION


class Audit:
    """Appends to a log, which is verified first; a last line truncated by a crash is removed.

    Args:
        path: the file; created with the first event.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._key = path, audit_key()
        self.log = read_log(path, self._key) if os.path.lexists(path) else Log(path)
        if self._key is not None and not self._key.signs:
            raise AuditError(f"{KEY}: a public key, which cannot sign; name the file of the private key")
        if self.log.key and self._key is None:
            raise AuditError(f"{path}: its events are signed; name the file with the private key: export {KEY}=FILE")
        if path.exists() and path.stat().st_size > self.log.size:
            os.truncate(path, self.log.size)
        self.head = self.log.head
        self._first, self._copy = self.log.hashes[:1], AuditCopy()

    def write(self, event: str, **facts: Any) -> str:
        """Add an event and return its hash; texts that are too long are cut.

        Args:
            event: what happened.
            facts: more about it; values that JSON has.
        """
        facts = {name: _short(x) for name, x in facts.items()}
        first = {"key": self._key.text} if self._key is not None and self.head == _FIRST else {}
        entry = {"time": round(time(), 3), "event": event, **facts, **first, "previous": self.head}
        found = _hash(entry)
        signed = {} if self._key is None else {"signature": self._key.sign(found)}
        line = json.dumps({**entry, "hash": found, **signed}).encode() + b"\n"
        append(self.path, line, sync=event in SYNCED)
        self.head, self._first = found, self._first or (found,)
        self._copy.write({**entry, "hash": found, **signed}, self._first[0])
        return found


def read_log(path: Path, key: AuditKey | None = None) -> Log:
    """Verify a log from its first line; signatures with the key that the first line names.

    Args:
        path: the file.
        key: the key that it must be; None takes any, which proves only that all events have the same signer.
    """
    try:
        data = read(path)
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror}; {RESTORE}") from None
    whole = data[: data.rfind(b"\n") + 1]
    previous, hashes, events, signer = _FIRST, list[str](), dict[str, dict[str, Any]](), None
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            stored, signature = entry.pop("hash"), entry.pop("signature", None)
            found = _hash(entry)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise AuditError(f"{path}, line {number}: not an event; {RESTORE}") from None
        if entry.get("previous") != previous or stored != found:
            raise AuditError(f"{path}, line {number}: changed after it was written; {RESTORE}")
        if number == 1:
            signer = _signer(path, entry.get("key"), key)
        if (signature is not None) != (signer is not None) or (signer and not signer.valid(found, signature)):
            why = "not signed, but others are" if signature is None else "not signed with the key of the first line"
            raise AuditError(f"{path}, line {number}: {why}; {RESTORE}")
        hashes.append(found)
        previous = found
        if entry.get("event") not in _PASSING:
            events[found] = entry
    text = signer.text if signer is not None else ""
    return Log(path, tuple(hashes), events, text, signer is not None and key is not None, len(whole))


def _signer(path: Path, named: Any, key: AuditKey | None) -> AuditKey | None:
    """The key of a log's signatures, None if it has none; raises if it is not the one that was given."""
    signer = read_key(named.encode(), f"{path}, line 1: its key") if isinstance(named, str) else None
    if key is not None and (signer is None or signer.text != key.text):
        raise AuditError(f"{path}, line 1: not signed with this key; check {KEY}, or {RESTORE}")
    return signer


def round_of(event: Mapping[str, Any]) -> int:
    """The round of an event; 0 if it has none."""
    found = event.get("round")
    return found if isinstance(found, int) else 0


def write_outcomes(write: Callable[..., object], round: int, record: Record) -> None:
    """Write the rejected, absent and quarantined clients of a round as events.

    Args:
        write: of the audit log.
        round: the round, from 1.
        record: that of the round.
    """
    node = {client: {"node": node} for client, node in record.nodes.items()}
    for rejection in record.rejections:
        detail = {"detail": rejection.detail} if rejection.detail else {}
        facts = {"round": round, "client": rejection.client, **node.get(rejection.client, {})}
        write("reject", **facts, reason=rejection.reason.name, **detail)
    for client, why in record.absent:
        write("absent", round=round, client=client, **node.get(client, {}), detail=why)
    for client, until, why in record.quarantined:
        write("quarantine", round=round, client=client, reason=why, until=until)


def past_rejections(log: Path) -> list[tuple[int, int, str]]:
    """The round from 0, the client and the reason's name of every rejection in a log, and of every missing reply.

    Of a round that was repeated, because the run ended before it was stored, the last time counts.

    Args:
        log: the run's audit log; it need not exist.
    """
    found: list[tuple[int, int, str]] = []
    for event in read_objects(log):
        if event["event"] in ("begin", "resume"):
            found = [rejection for rejection in found if rejection[0] < event["round"]]
        elif event["event"] == "reject":
            found.append((event["round"] - 1, event["client"], event["reason"]))
        elif event["event"] == "absent" and "node" in event:
            found.append((event["round"] - 1, event["client"], ABSENT))
    return found


def past_withdrawals(log: Path) -> set[int]:
    """The clients that have left a run.

    Args:
        log: the run's audit log; it need not exist.
    """
    return {event["client"] for event in read_objects(log) if event["event"] == "withdraw"}


def past_uploads(log: Path) -> dict[str, int]:
    """The digests of the displacements that were accepted, each with its round from 1.

    Args:
        log: the run's audit log; it need not exist.
    """
    accepts = (event for event in read_objects(log) if event["event"] == "accept")
    return {digest: event["round"] for event in accepts for digest in event["uploads"]}


def _short(x: Any) -> Any:
    """A value whose text is not too long for a log."""
    return x if not isinstance(x, str) or len(x) <= _LONGEST else f"{x[:_LONGEST]} ... ({len(x)} characters)"


def _hash(entry: dict[str, Any]) -> str:
    """The hash of an event, which contains the hash of the event before."""
    return sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
