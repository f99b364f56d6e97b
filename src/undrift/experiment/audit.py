"""The audit log: one line of JSON for everything that happened to a run, each bound to the one before by a hash."""

import json
import os
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

_FIRST = "0" * 64


class AuditError(RuntimeError):
    """A log that was changed after it was written; the message names the line."""


class Audit:
    """Appends to a log; a line cut short by a crash is taken away first."""

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
        told = {"time": round(time(), 3), "event": event, **facts, "previous": self._last}
        self._last = _hash(told)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(json.dumps({**told, "hash": self._last}).encode() + b"\n")


def verify(path: Path) -> int:
    """Check a log from its first line on and return how many events it holds."""
    previous, count = _FIRST, 0
    for count, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            told = json.loads(line)
            found = told.pop("hash")
        except (ValueError, KeyError, AttributeError):
            raise AuditError(f"{path}, line {count}: no event") from None
        if told.get("previous") != previous or found != _hash(told):
            raise AuditError(f"{path}, line {count}: changed after it was written")
        previous = found
    return count


def _hash(told: dict[str, Any]) -> str:
    """The hash of an event, which holds that of the one before."""
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
