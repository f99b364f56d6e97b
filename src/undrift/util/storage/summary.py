"""What the summary of a run tells about its end."""

from collections.abc import Mapping
from typing import Any


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
