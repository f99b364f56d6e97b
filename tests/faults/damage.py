"""Corrupting writers: every way in which a file may come back other than it was written."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

Damage = Callable[[Path], object]


def truncated(length: int) -> Damage:
    """Cut a file to a length."""
    return lambda path: path.write_bytes(path.read_bytes()[:length]) and None


def flipped(seed: int) -> Damage:
    """Change one bit, drawn from a seed."""

    def change(path: Path) -> None:
        draw, data = random.Random(seed), bytearray(path.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)

    return change


def zeroed(path: Path) -> None:
    """Zeros only, as after a power failure on some file systems."""
    path.write_bytes(bytes(path.stat().st_size))


def emptied(path: Path) -> None:
    """No bytes."""
    path.write_bytes(b"")


def removed(path: Path) -> None:
    """No file."""
    path.unlink()


def prolonged(path: Path) -> None:
    """A byte too many."""
    path.write_bytes(path.read_bytes() + b"\0")


def swapped(with_: Path) -> Damage:
    """The content of another file."""
    return lambda path: path.write_bytes(with_.read_bytes()) and None


def damages(path: Path, flips: int = 4, step: int = 4096) -> Iterator[tuple[str, Damage]]:
    """Every kind of damage to a file by name: all truncations at multiples of a step, some flips, and the others.

    Args:
        path: the file, as it is before.
        flips: how many bits to flip, each in a copy of its own.
        step: bytes between two truncations.
    """
    size = path.stat().st_size
    yield from ((f"cut at {length}", truncated(length)) for length in [*range(0, size, step), size - 1])
    yield from ((f"bit flipped, seed {seed}", flipped(seed)) for seed in range(flips))
    yield from (("zeroed", zeroed), ("emptied", emptied), ("removed", removed), ("prolonged", prolonged))
