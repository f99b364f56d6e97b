"""One row per round: JSON lines during a run, and a Parquet file for analysis."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from undrift.util.files import replacing, write

Row = dict[str, Any]


class Metrics:
    """The rows of a run.

    Args:
        path: the file of JSON lines; the Parquet file is written next to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Add the row of a round."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(json.dumps(row).encode() + b"\n")

    def rows(self) -> list[Row]:
        """All rows; a last line truncated by a crash is skipped.

        Rounds are counted from 1. Runs of earlier versions counted from 0; their rows are returned with 1 added.
        """
        rows, main = _read(self.path), self.path.with_name("metrics.jsonl")
        first = (rows if main == self.path else _read(main))[:1]  # the lens does not measure the first round
        return [{**row, "round": row["round"] + 1} for row in rows] if first and first[0].get("round") == 0 else rows

    def rewind(self, round: int) -> None:
        """Delete the rows after this round, because these rounds will be run again."""
        kept = [row for row in self.rows() if row["round"] <= round]
        write(self.path, "".join(json.dumps(row) + "\n" for row in kept), sync=False)

    def write_parquet(self) -> Path:
        """Write all rows as Parquet, with a column for every key."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        path = self.path.with_suffix(".parquet")
        with replacing(path) as temporary:
            pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), temporary)
        return path


def _read(path: Path) -> list[Row]:
    """The rows of a file, as they are written; none if there is no file."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
