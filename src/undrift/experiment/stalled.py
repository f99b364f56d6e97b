"""The end of a run whose model no longer changes."""

from pathlib import Path

from undrift.engine.record import Record
from undrift.experiment.folder import RunError


class StalledError(RunError):
    """No upload was accepted for many rounds, so the model did not change."""


def stalled(folder: Path, record: Record, idle: int) -> StalledError:
    """The error of a run without progress.

    Args:
        folder: the run's.
        record: of the last round.
        idle: how many rounds in a row had no accepted upload.
    """
    reasons = sorted({rejection.reason.name.lower() for rejection in record.rejections}) or ["no client replied"]
    return StalledError(
        f"{folder}: no upload was accepted in the last {idle} rounds ({', '.join(reasons)}), so the model does not "
        "change: try a smaller local.lr or set local.clip; audit.jsonl has the reason of every client, and "
        "output.patience the number of such rounds after which a run ends"
    )
