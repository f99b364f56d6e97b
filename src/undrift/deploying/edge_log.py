"""The audit log of an edge server, of the same form as that of a run."""

from pathlib import Path

from undrift.engine.round.record import Record
from undrift.runs.folder.audit import Audit, write_outcomes


class EdgeLog:
    """Writes what an edge server accepted, rejected and missed in every round.

        log = EdgeLog("edge/audit.jsonl")
        app = edge_app("scaffold", grid, on_round=log.write, head=log.head)

    Args:
        path: the file; the events that it has are verified first.
    """

    def __init__(self, path: Path | str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._audit = Audit(Path(path))

    def head(self) -> str:
        """The hash of the last event."""
        return self._audit.head

    def write(self, run: str, record: Record) -> None:
        """Write the events of a round.

        Args:
            run: the run's name.
            record: that of the round.
        """
        number, clients = record.round + 1, [visit.client for visit in record.visits]
        write_outcomes(self._audit.write, number, record)
        event = "abandoned" if getattr(record, "abandoned", False) else "accept"
        self._audit.write(event, run=run, round=number, clients=clients, uploads=getattr(record, "uploads", {}))
