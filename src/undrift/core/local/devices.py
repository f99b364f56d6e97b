"""Files of devices: how fast each computes and sends, and when it is there.

A CSV file has a row for each device, numbered from 0; all numbers are seconds:

    client,seconds_per_example,seconds_per_message,available,period
    0,0.02,1.5,0-28800 64800-86400,86400
    1,0.005,0.2,,

A task takes the examples that it trains on times `seconds_per_example`, and two messages. `available` has intervals
[from, to) of virtual time, which repeat after `period` if it is given; a device without them is always there. Client c
has device c modulo their number.

FedScale's two files are dictionaries that are pickled, each from ids to entries; its documentation is
benchmark/dataset/data/device_info/README.md in the repository SymbioticLab/FedScale:

    client_device_capacity   {id: {"computation": milliseconds to infer an example, "communication": kbit/s}}
    client_behave_trace      {id: {"active": [s], "inactive": [s], "finish_time": s, ...}}

As there, training takes three times as long as inference, a kbit has 1024 bits, client c has entry c modulo their
number, of each file in its order, and the intervals [active, inactive) repeat after `finish_time`. A pickle may
run code when it is read: here one with anything but dictionaries, lists, numbers and texts is refused before it does.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.core.local.presence import Intervals
from undrift.util.storage.pickled import read_pickled

COLUMNS = ("client", "seconds_per_example", "seconds_per_message", "available", "period")
FORM = f"write a CSV file with the columns {','.join(COLUMNS)} in this order, see docs/guide/asynchronous.md"
_NANO, _LONGEST = 10**9, 10**18  # nanoseconds: thirty years
_TRAINING = 3  # times as long as inference, as in FedScale


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of a file.

    Args:
        example: nanoseconds that each trains an example.
        message: nanoseconds that each takes for a message, and `byte` for each byte of it.
        byte: see `message`.
        intervals: when each is there; None if all are, always.
    """

    example: Sequence[int]
    message: Sequence[int]
    byte: Sequence[float]
    intervals: Sequence[Intervals] | None

    def nanoseconds(self, client: int, examples: int, size: int) -> int:
        """How long a task takes.

        Args:
            client: who does it.
            examples: how many it trains on, each as often as it comes.
            size: bytes of a message, of which there are two.
        """
        device = client % len(self.example)
        return examples * self.example[device] + 2 * (self.message[device] + round(size * self.byte[device]))


def file_digests(path: str, behavior: str | None) -> str:
    """The first signs of the SHA-256 of each file, joined by "+".

    Args:
        path: the first file.
        behavior: the second; None if there is none.
    """
    return "+".join(sha256(_content(one)).hexdigest()[:16] for one in (path, behavior) if one is not None)


def read_devices(path: str, behavior: str | None = None, digest: str | None = None) -> Devices:
    """The devices of a CSV file, or of FedScale's.

    Args:
        path: the CSV file, or FedScale's of speeds.
        behavior: FedScale's of behavior; None makes its devices available always.
        digest: what `file_digests` gave when the run began; None takes the files as they are.
    """
    found = file_digests(path, behavior)
    if digest not in (None, found):
        which = " or ".join(one for one in (path, behavior) if one is not None)
        raise ValueError(f"durations: {which} has changed since the run began; restore it, or begin a new run")
    return _read(path, behavior, found)


@lru_cache(maxsize=2)
def _read(path: str, behavior: str | None, _: str) -> Devices:
    """The devices of files with these digests."""
    if behavior is None and not (content := _content(path)).startswith(b"\x80"):
        return _from_csv(path, content)
    return _from_fedscale(path, behavior)


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"durations: {path} cannot be read: {error.strerror}; give the path of a file") from None


def _from_csv(path: str, content: bytes) -> Devices:
    """Our own format."""
    try:
        table = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        rows = list(table)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"durations: {path} is not CSV: {error}; {FORM}") from None
    if tuple(table.fieldnames or ()) != COLUMNS:
        raise ValueError(f"durations: {path}: {FORM}")
    found = dict[int, tuple[int, int, Intervals]]()
    for line, row in enumerate(rows, 2):
        if len(row) > len(COLUMNS) or None in row.values():
            raise ValueError(f"durations: {path}, line {line}: {FORM}")
        try:
            if not (row["client"].isascii() and row["client"].isdigit()):
                raise ValueError(f"a client is a number from 0 on, got {row['client']!r}")
            if (client := int(row["client"])) in found:
                raise ValueError(f"client {client} is named twice; name it once")
            speeds = [_nano(row[name]) for name in COLUMNS[1:3]]
            found[client] = speeds[0], speeds[1], _intervals(row["available"], row["period"])
        except ValueError as error:
            raise ValueError(f"durations: {path}, line {line}: {error}") from None
    if not found or set(found) != set(range(len(found))):
        raise ValueError(f"durations: {path}: number the clients from 0 on, without a gap; got {len(found)} rows")
    example, message, intervals = zip(*(found[client] for client in range(len(found))), strict=True)
    return Devices(example, message, [0.0] * len(found), intervals if any(intervals) else None)


def _nano(text: str) -> int:
    """Seconds as whole nanoseconds, exactly as written."""
    with suppress(ArithmeticError):
        found = Decimal(text.strip()) * _NANO
        if 0 <= found <= _LONGEST:
            return int(found.to_integral_value())
    raise ValueError(f"seconds must be a number from 0 to {_LONGEST // _NANO:g}, got {text!r}")


def _intervals(text: str, period: str) -> Intervals:
    """The intervals of a device in our format."""
    turn, pairs = _nano(period) if period.strip() else 0, []
    for word in text.split():
        begin, dash, end = word.partition("-")
        if not dash:
            raise ValueError(f"available: write intervals in seconds, 0-28800 64800-86400, got {word!r}")
        pairs.append((_nano(begin), _nano(end)))
        if not pairs[-1][0] < pairs[-1][1] <= (turn or _LONGEST):
            limit = " and end within the period" if turn else ""
            raise ValueError(f"available: {word} must go from a time to a later one{limit}")
    return (turn, pairs) if pairs else None


def _unpickle(path: str) -> Mapping[Any, Mapping[str, Any]]:
    """The entries of one of FedScale's files."""
    try:
        found = read_pickled(_content(path))
    except ValueError as error:
        raise ValueError(f"durations: {path} is not a file of FedScale's: {error}; {FORM}") from None
    if not isinstance(found, dict) or not found or not all(isinstance(one, dict) for one in found.values()):
        raise ValueError(f"durations: {path} is not a file of FedScale's, a dictionary of dictionaries; {FORM}")
    return found


def _from_fedscale(path: str, behavior: str | None) -> Devices:
    """FedScale's format."""
    speeds = [
        [_number(path, key, one, name) for name in ("computation", "communication")]
        for key, one in _unpickle(path).items()
    ]
    if not all(rate > 0 for _, rate in speeds):
        raise ValueError(f"durations: {path}: communication must be above 0 kbit/s")
    intervals = None if behavior is None else [_active(behavior, *one) for one in _unpickle(behavior).items()]
    example = [round(_TRAINING * milliseconds * 1e6) for milliseconds, _ in speeds]
    return Devices(example, [0] * len(speeds), [8 / 1024 / rate * _NANO for _, rate in speeds], intervals)


def _number(path: str, key: Any, entry: Mapping[str, Any], name: str) -> float:
    found = entry.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _LONGEST // _NANO:
        raise ValueError(f"durations: {path}: entry {key!r} must have {name!r}, a number of 0 or more, got {found!r}")
    return float(found)


def _active(path: str, key: Any, entry: Mapping[str, Any]) -> Intervals:
    """The intervals of one of FedScale's entries, without those that hold no time."""
    period = round(_number(path, key, entry, "finish_time") * _NANO)
    begin, end = _times(path, key, entry, "active"), _times(path, key, entry, "inactive")
    if period == 0 or len(begin) != len(end):
        raise ValueError(f"durations: {path}: entry {key!r} must have a positive finish_time, and lists of one length")
    pairs = [(first, min(last, period)) for first, last in zip(begin, end, strict=True)]
    return period, [(first, last) for first, last in pairs if first < last]


def _times(path: str, key: Any, entry: Mapping[str, Any], name: str) -> list[int]:
    """A list of seconds in nanoseconds."""
    found = entry.get(name)
    if not isinstance(found, list):
        raise ValueError(f"durations: {path}: entry {key!r} must have {name!r}, a list of seconds, got {found!r:.80}")
    return [round(_number(path, key, {name: x}, name) * _NANO) for x in found]
