"""The audit log: one line of JSON per event of a run; each line contains the hash of the line before."""

import json
import os
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

_FIRST = "0" * 64


class AuditError(RuntimeError):
    """The log was changed after it was written; the message names the line."""


class Audit:
    """Appends to a log; a last line truncated by a crash is removed first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = _FIRST
        if path.exists():
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                os.truncate(path, len(whole))
            lines = whole.splitlines()
            self._last = json.loads(lines[-1])["hash"] if lines else _FIRST

    def write(self, event: str, **facts: Any) -> None:
        """Add an event."""
        entry = {"time": round(time(), 3), "event": event, **facts, "previous": self._last}
        self._last = _hash(entry)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(json.dumps({**entry, "hash": self._last}).encode() + b"\n")


def verify(path: Path) -> int:
    """Validate a log from its first line and return how many events it contains."""
    previous, count = _FIRST, 0
    for count, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            stored = entry.pop("hash")
        except (ValueError, KeyError, AttributeError):
            raise AuditError(f"{path}, line {count}: no event") from None
        if entry.get("previous") != previous or stored != _hash(entry):
            raise AuditError(f"{path}, line {count}: changed after it was written")
        previous = stored
    return count


def _hash(entry: dict[str, Any]) -> str:
    """The hash of an event, which contains the hash of the event before."""
    return sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
