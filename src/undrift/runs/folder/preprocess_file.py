"""What a run does to an example before its model receives it: preprocess.json in its folder."""

from pathlib import Path

from undrift.data.arrays.preprocess import Preprocess
from undrift.data.loader import known_source
from undrift.data.own.columns import BEFORE
from undrift.runs.folder.files import RunError, as_json, read_json, reading
from undrift.util.shell import as_argument
from undrift.util.storage.files import write

FILE = "preprocess.json"


def read_preprocess(folder: Path) -> Preprocess | None:
    """The record of a run or an export; None if its folder has none.

    Args:
        folder: of either.
    """
    with reading(folder / FILE):
        found = read_json(folder / FILE)
        return None if found is None else Preprocess.from_record(found)


def same_preprocess(folder: Path, now: Preprocess) -> bool:
    """Whether the folder of a run has this record; raises if the run began with another one.

    Args:
        folder: the run's.
        now: of the data as they are loaded.
    """
    before = read_preprocess(folder)
    if before is None and _is_before(folder) and now.statistics == "exact":
        raise RunError(
            f"{folder}: it was begun by a version that read tables in another way; continue it by itself, with "
            f"undrift resume {as_argument(folder)}, or start a new run"
        )
    if before not in (None, now):
        raise RunError(f"{folder / FILE}: the data are not prepared as when the run began; restore them")
    return before is not None


def keep_preprocess(folder: Path, now: Preprocess) -> None:
    """Write the record into the folder of a run; raises if the run began with another one.

    Args:
        folder: the run's, locked.
        now: of the data as they are loaded.
    """
    if not same_preprocess(folder, now):
        write(folder / FILE, as_json(now.record()), follow=False)


def arguments_before(folder: Path | None, data: str) -> dict[str, str]:
    """The arguments of data of one's own with which a run of an earlier version continues; none for others.

    Args:
        folder: of a run that has begun; None for a new one.
        data: the name of its data.
    """
    if folder is None or known_source(data) is not None:
        return {}
    began = read_preprocess(folder)
    return dict(BEFORE) if _is_before(folder) or (began is not None and began.statistics == "pooled") else {}


def _is_before(folder: Path) -> bool:
    """Whether a run was begun by a version that wrote no preprocess.json."""
    return (folder / "partition.json").is_file() and not (folder / FILE).is_file()
