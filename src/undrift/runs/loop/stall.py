"""Runs that end early: one whose uploads are all rejected, and the event of the audit log for any other stop."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from undrift.engine.round.record import Record
from undrift.runs.folder.audit import Audit
from undrift.runs.folder.files import RunError
from undrift.runs.folder.signature import AuditError
from undrift.util.shell import as_argument
from undrift.util.storage.metrics import read_rows

_ABSENT = "no client replied"
_LARGE = "try a smaller local.lr or set local.clip"
_ADVICE = {
    _ABSENT: "check availability, probability and quarantine",
    "empty": "the clients have no examples: check data, partition and proxy",
    "idle": "the clients make no step: check local.epochs, local.steps, local.deadline and local.speed",
    "finite": _LARGE,
    "size": f"{_LARGE}, or a larger bound if one is set",
}
"""Reason -> what to do about it."""


class StalledError(RunError):
    """No upload was accepted for many rounds, so the model did not change."""


def rejection_reasons(record: Record) -> list[str]:
    """The reasons for which uploads of a round were rejected."""
    return sorted({rejection.reason.name.lower() for rejection in record.rejections}) or [_ABSENT]


def stall_error(folder: Path, reasons: Sequence[str], idle: int) -> StalledError:
    """The error of a run without progress.

    Args:
        folder: the run's.
        reasons: why the uploads of the last round were rejected.
        idle: how many rounds in a row had no accepted upload.
    """
    advice = "".join(f"{_ADVICE[reason]}; " for reason in reasons if reason in _ADVICE)
    return StalledError(
        f"{folder}: no upload was accepted in the last {idle} rounds ({', '.join(reasons)}), so the model does not "
        f"change: {advice}audit.jsonl has the reason of every client, and output.max_idle is the number of such rounds "
        "after which a run ends"
    )


def idle_rounds(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many rounds at the end of a run, so far, had no accepted upload.

    Args:
        rows: the run's.
    """
    return len(list(takewhile(lambda row: row.get("clients") == 0, reversed(rows))))


def check_stalled(folder: Path, max_idle: int) -> None:
    """Raise if a run ended because no upload was accepted; `undrift resume` tries it again.

    Args:
        folder: the run's, new or not.
        max_idle: after how many such rounds it ended.
    """
    idle = idle_rounds(read_rows(folder))
    if idle >= max_idle:
        raise stall_error(folder, [f"try it again with undrift resume {as_argument(folder)}"], idle)


@contextmanager
def record_stop(log: Path) -> Iterator[None]:
    """Write an event into the audit log if a run ends before its last round; `undrift status` shows it.

    The log is read again first: an interrupt may have come just after a line was written.

    Args:
        log: the audit log.
    """
    try:
        yield
    except BaseException as error:
        why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        with suppress(OSError, AuditError):  # the disk may be what failed
            Audit(log).write("stopped", why=why)
        raise
