"""Who may control a deployment's servers: the proxy's list of operators, each change of which is an event of the run.

0123456789abcdef0123456789abcdef01234567 "anna read start admit";   # operators.map: key, name, rights
"""

import logging
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

_log = logging.getLogger("flwr")  # Flower shows what is logged here
_LINE = re.compile(r'\s*"?([0-9a-fA-F]{40})"?\s+"([^"\s]+)\s*([^"]*)"\s*;\s*(?:#.*)?')


class Operators:
    """The proxy's list of operators, read again before every round.

    Args:
        path: the file that nginx includes; None has no list.
        note: called with the facts of the first list and of each that differs, by name.
    """

    def __init__(self, path: str | Path | None, note: Callable[..., object]) -> None:
        self.path, self.note = path and Path(path), note
        self._seen: bytes | str | None = None
        self._known: dict[str, dict[str, Any]] | None = None

    def check(self) -> None:
        """Report a list that has changed; one that cannot be read is reported too, and ends nothing."""
        if not self.path:
            return
        try:
            data = self.path.read_bytes()
            if data == self._seen:
                return
            entries = read_operators(data.decode())
        except (OSError, ValueError) as error:
            if str(error) != self._seen:
                _log.warning("the list of operators %s cannot be read: %s", self.path, error)
                self.note(file=str(self.path), error=str(error))
            self._seen = str(error)
            return
        self._seen = data
        facts: dict[str, Any] = {"file": str(self.path), "sha256": sha256(data).hexdigest()}
        if self._known is None:
            self.note(**facts, operators=entries)
        else:
            self.note(**facts, **compare_operators(self._known, entries))
        self._known = entries


def read_operators(text: str) -> dict[str, dict[str, Any]]:
    """The operators of a list by the SHA-1 fingerprint of their certificates: name and rights.

    Args:
        text: the lines that nginx includes.
    """
    entries: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (match := _LINE.fullmatch(line)) is None:
            raise ValueError(f'line {number} is not a fingerprint of 40 digits, "name rights" and a semicolon')
        entries[match[1].lower()] = {"name": match[2], "rights": match[3].split()}
    return entries


def compare_operators(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The operators of one list that were added, removed or changed in another, by fingerprint.

    Args:
        before: the entries of one list: see `read_operators`.
        now: those of the other.
    """
    return {
        "added": {key: now[key] for key in now.keys() - before.keys()},
        "removed": {key: before[key] for key in before.keys() - now.keys()},
        "changed": {key: now[key] for key in now.keys() & before.keys() if now[key] != before[key]},
    }
