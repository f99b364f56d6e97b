"""Clients that a round left out, as events of the audit log, and what a resumed run reads there."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from undrift.engine.round.record import Record


def write_outcomes(write: Callable[..., object], round: int, record: Record) -> None:
    """Write the rejected, absent and quarantined clients of a round as events.

    Args:
        write: of the audit log.
        round: the round, from 1.
        record: that of the round.
    """
    for rejection in record.rejections:
        detail = {"detail": rejection.detail} if rejection.detail else {}
        write("reject", round=round, client=rejection.client, reason=rejection.reason.name, **detail)
    for client, why in record.absent:
        write("absent", round=round, client=client, detail=why)
    for client, until, why in record.quarantined:
        write("quarantine", round=round, client=client, reason=why, until=until)


def past_rejections(log: Path) -> Iterator[tuple[int, int, str]]:
    """The round from 0, the client and the reason's name of every rejection in a log.

    Of a round that was repeated, because the run ended before it was stored, the last time counts.

    Args:
        log: the run's audit log; it need not exist.
    """
    found: list[tuple[int, int, str]] = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else ():
        event = json.loads(line)
        if event["event"] in ("begin", "resume"):
            found = [rejection for rejection in found if rejection[0] < event["round"]]
        elif event["event"] == "reject":
            found.append((event["round"] - 1, event["client"], event["reason"]))
    yield from found
