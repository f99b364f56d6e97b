"""One row per round: JSON lines while a run goes on, Parquet beside them for analysis."""

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
        path: the file of JSON lines; the Parquet file lies beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Add the row of a round."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(json.dumps(row).encode() + b"\n")

    def rows(self) -> list[Row]:
        """All rows; a last line cut short by a crash is left out."""
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]

    def rewind(self, round: int) -> None:
        """Forget this round and all after it, because they will be run again."""
        kept = [row for row in self.rows() if row["round"] < round]
        write(self.path, "".join(json.dumps(row) + "\n" for row in kept), sync=False)

    def write_parquet(self) -> Path:
        """Write all rows as Parquet, a column for every key."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        path = self.path.with_suffix(".parquet")
        with replacing(path) as temporary:
            pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), temporary)
        return path
