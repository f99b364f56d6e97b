"""What the files of a run tell: whether it has ended, and whether a folder is one of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift.util.naming.names import suggest


def has_ended(summary: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a run has ended: all its rounds are done, or none of the last `stop_after` was better than before.

    Args:
        summary: of the run; empty if it has none.
        settings: of the run, as in its config.toml.

    Example:
        >>> has_ended({"rounds": 7, "stop_after": 3}, {"rounds": 20, "stop_after": 3})
        True
    """
    early = 0 < settings.get("stop_after", 0) <= summary.get("stop_after", 0)
    return bool(early or summary.get("rounds", 0) >= settings["rounds"])


def why_no_run(folder: Path) -> str | None:
    """Why a folder is not one of a run, and what to do; None if it is one.

    Args:
        folder: may not exist.
    """
    if (folder / "config.toml").is_file():
        return None
    if folder.exists():
        return f"{folder} is not a run: it has no config.toml; give a folder that undrift run has written"
    runs = sorted(path.parent.name for path in folder.parent.glob("*/config.toml"))
    if not runs:
        return f"{folder} does not exist; give a folder that undrift run has written"
    return f"{folder} does not exist; {suggest(folder.name, runs)}"
