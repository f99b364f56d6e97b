"""Heads of a run's audit log that a node has kept: STATE-DIR/RUN/heads.jsonl, a line for each that the server sent.

A run's folder that was put back to an earlier state no longer contains the later ones, whatever its server does.
"""

import json
from pathlib import Path
from typing import Any

from undrift.util.storage.files import append, make_private
from undrift.util.storage.jsonable import read_objects

HEADS = "heads.jsonl"


def keep_head(folder: Path, round: int, head: str) -> str | None:
    """Note a head of the server's log; gives a warning if the server trains a round that lies before the last one.

    Args:
        folder: of the run's states on this node.
        round: the round, from 1, that the server has ordered.
        head: the hash of the last event in its log.
    """
    path = folder / HEADS
    last = (_lines(path) or [{"round": 0, "head": ""}])[-1]
    if last["head"] == head:
        return None
    make_private(folder)
    append(path, json.dumps({"round": round, "head": head}).encode() + b"\n")
    if round >= last["round"]:
        return None
    return (
        f"the server's run was put back: it orders round {round} after round {last['round']}; {path} has the heads of "
        "its log, for undrift verify --anchor on the server"
    )


def read_heads(path: Path) -> list[str]:
    """The heads that a node has kept, none if this is no such file.

    Args:
        path: the file.
    """
    return [line["head"] for line in _lines(path)]


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of the file; damaged ones are left out."""
    return [x for x in read_objects(path) if isinstance(x.get("round"), int) and isinstance(x.get("head"), str)]
