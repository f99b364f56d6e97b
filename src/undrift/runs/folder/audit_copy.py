"""Copies of a run's events elsewhere, as lines of JSON: a file, which may be on another machine's disk, or syslog.

`UNDRIFT_AUDIT_COPY` names where, separated by commas: `/mnt/audit/first.jsonl`, `syslog:/dev/log`,
`syslog:log.example.org:514`. Each line is the event with `log`, the beginning of the first event's hash, by which it
belongs to its run. A copy that cannot be written is a warning, and does not end the run; one in a file can be given to
`undrift verify --anchor`.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import closing
from logging.handlers import SYSLOG_UDP_PORT, SysLogHandler
from pathlib import Path
from typing import Any

from undrift.util.storage.files import append
from undrift.util.storage.jsonable import read_objects

COPY = "UNDRIFT_AUDIT_COPY"
_SYSLOG = "syslog:"
_DIGITS = 16
_log = logging.getLogger("flwr")  # of which a deployment keeps the lines in log.txt


class AuditCopy:
    """Writes events to the places that `UNDRIFT_AUDIT_COPY` names.

    Args:
        places: the places; None takes those of the variable.
    """

    def __init__(self, places: str | None = None) -> None:
        named = os.environ.get(COPY, "") if places is None else places
        self.places = [place.strip() for place in named.split(",") if place.strip()]
        self._failed: set[str] = set()

    def write(self, event: Mapping[str, Any], log: str) -> None:
        """Copy an event; a place that fails is warned about once.

        Args:
            event: the event, with its hash and its signature.
            log: the hash of the first event of its log.
        """
        line = json.dumps({"log": log[:_DIGITS], **event})
        for place in self.places:
            try:
                if place.startswith(_SYSLOG):
                    _send(place, line)
                else:
                    append(Path(place), line.encode() + b"\n")
                self._failed.discard(place)
            except (OSError, ValueError) as error:
                if place not in self._failed:
                    _log.warning("%s: %s has no copy of the audit log: %s", COPY, place, error)
                self._failed.add(place)


def _send(place: str, line: str) -> None:
    """Send a line to syslog."""
    with closing(_Syslog(_address(place.removeprefix(_SYSLOG)))) as handler:
        handler.emit(logging.makeLogRecord({"msg": f"undrift: {line}", "levelname": "INFO"}))


class _Syslog(SysLogHandler):
    """A connection to syslog whose errors are raised."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  a name of logging
        """Raise the error."""
        raise


def _address(place: str) -> str | tuple[str, int]:
    """A socket's path, or host and port."""
    if place.startswith("/"):
        return place
    host, _, port = place.partition(":")
    if not host or not (port or "0").isdecimal():
        raise ValueError(f"{place!r} is no address; write syslog:/dev/log or syslog:host:514")
    return host, int(port or SYSLOG_UDP_PORT)


def read_copy(path: Path, log: str) -> list[dict[str, Any]]:
    """The events of one log in a file of copies, without their `log`.

    Args:
        path: the file.
        log: the hash of the log's first event.
    """
    lines = [line for line in read_objects(path) if isinstance(line.get("log"), str) and "hash" in line]
    return [{k: x for k, x in line.items() if k != "log"} for line in lines if line["log"] == log[:_DIGITS]]
