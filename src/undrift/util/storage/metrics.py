"""One row per round: JSON lines during a run, and a Parquet file for analysis."""

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from undrift.util.storage.files import append, write
from undrift.util.storage.jsonable import parse_object

Row = dict[str, Any]


class Metrics:
    """The rows of a run.

    Args:
        path: the file of JSON lines; the Parquet file is written next to it.
        needed: whether a damaged line is an error; otherwise it is left out.
    """

    def __init__(self, path: Path, *, needed: bool = True) -> None:
        self.path, self.needed = path, needed
        self._bytes: int | None = None  # as far as `_hash` has read
        self._hash = sha256()

    def append(self, row: Mapping[str, Any], *, sync: bool = False) -> None:
        """Add the row of a round.

        Args:
            row: its numbers.
            sync: wait until it, and all rows before it, are on disk.
        """
        line = json.dumps(row).encode() + b"\n"
        append(self.path, line, sync=sync)
        if self._bytes is not None:
            self._hash.update(line)
            self._bytes += len(line)

    def seal(self) -> dict[str, Any]:
        """The length of the file and the SHA-256 of its content, for the audit log."""
        if self._bytes is None:
            data = self.path.read_bytes() if self.path.exists() else b""
            self._bytes, self._hash = len(data), sha256(data)
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}

    def rows(self) -> list[Row]:
        """All rows; a last line truncated by a crash is skipped.

        Rounds are counted from 1. Runs of earlier versions counted from 0; their rows are returned with 1 added.
        """
        rows, main = _read(self.path, self.needed), self.path.with_name("metrics.jsonl")
        first = (rows if main == self.path else _read(main))[:1]  # the lens does not measure the first round
        return [{**row, "round": row["round"] + 1} for row in rows] if first and first[0].get("round") == 0 else rows

    def rewind(self, round: int) -> None:
        """Delete the rows after this round, because these rounds will be run again."""
        kept = [row for row in self.rows() if row["round"] <= round]
        write(self.path, "".join(json.dumps(row) + "\n" for row in kept), follow=False)
        self._bytes = None

    def amend(self, row: Mapping[str, Any], before: Callable[[dict[str, Any]], object]) -> None:
        """Replace the row of the last round.

        Args:
            row: its numbers.
            before: called, before the file is replaced, with what `seal` will return.
        """
        rows = [*self.rows()[:-1], row]
        data = "".join(json.dumps(one) + "\n" for one in rows).encode()
        before({"bytes": len(data), "sha256": sha256(data).hexdigest()})
        write(self.path, data, follow=False)
        self._bytes = None

    def parquet(self) -> bytes:
        """All rows as the content of a Parquet file, with a column for every key."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), out)
        content: bytes = out.getvalue().to_pybytes()
        return content


def read_rows(folder: Path) -> list[Row]:
    """The rows of the run in a folder.

    Args:
        folder: the run's.
    """
    return Metrics(folder / "metrics.jsonl").rows()


def _read(path: Path, needed: bool = True) -> list[Row]:
    """The rows of a file, as they are written; none if there is no file."""
    data, rows = path.read_bytes() if path.exists() else b"", list[Row]()
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        row = parse_object(line)
        if isinstance(row.get("round"), int):
            rows.append(row)
        elif needed:
            raise ValueError(f"{path}, line {number}: damaged; restore the file from a backup")
    return rows
