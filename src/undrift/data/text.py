"""Text as tokens: characters of a play with a client per role, and hashed words."""

import re
from collections.abc import Iterable, Sequence
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

ALPHABET = "\n !\"&'(),-." + digits + ":;>?" + ascii_uppercase + "[]" + ascii_lowercase + "}"
"""The 80 characters of LEAF's Shakespeare; every other is the symbol after them."""

UNKNOWN = len(ALPHABET)
TRAINING = 0.8

_WORD = re.compile(r"\w+")
_CODES = np.full(256, UNKNOWN, np.uint8)
_CODES[[ord(letter) for letter in ALPHABET]] = np.arange(UNKNOWN)


def encode(text: str) -> NDArray[np.uint8]:
    """One symbol per character: its place in the alphabet, or UNKNOWN.

    Example:
        >>> encode("Ah $").tolist()
        [25, 60, 1, 80]
    """
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.where(points < 256, _CODES[np.minimum(points, 255)], np.uint8(UNKNOWN))


def roles(play: str) -> dict[str, str]:
    """What each role says, in the order of first appearance; line ends and runs of blanks become one blank.

    A speech is headed by a line "ROLE:" and ends at a blank line.
    """
    said: dict[str, list[str]] = {}
    for speech in re.split(r"\n\s*\n", play):
        head, _, words = speech.strip().partition("\n")
        if head.endswith(":") and words:
            said.setdefault(head[:-1], []).append(words)
    return {role: " ".join(" ".join(speeches).split()) for role, speeches in said.items()}


def cut(windows: int, stride: int, length: int) -> tuple[int, int]:
    """Where training ends and where the test begins: by time, and no test window sees a character of training.

    With stride 1 this is LEAF's gap of length - 1 windows.

    Example:
        >>> cut(1000, 1, 80)
        (800, 879)
    """
    end = int(TRAINING * windows)
    return end, end - 1 + -(-length // stride)


def windows(play: str, stride: int = 1, length: int = 80) -> dict[str, NDArray[Any]]:
    """Windows of characters, each with the character that follows, for every role long enough to be tested.

    Args:
        play: the text.
        stride: how far one window starts after the one before; 1 gives all.
        length: characters in a window.

    Returns:
        inputs, targets and owners of "train" and "test", as arrays named "train-inputs" and so on.
    """
    if stride < 1:
        raise ValueError(f"windows: stride must be 1 or more, got {stride}")
    parts: dict[str, list[NDArray[Any]]] = {f"{s}-{p}": [] for s in ("train", "test") for p in ("inputs", "owners")}
    owner = 0
    for text in roles(play).values():
        count = -(-(len(text) - length) // stride)
        end, begin = cut(count, stride, length)
        if end < 1 or begin >= count:
            continue
        seen = np.lib.stride_tricks.sliding_window_view(encode(text), length + 1)[::stride]
        for split, chosen in (("train", seen[:end]), ("test", seen[begin:])):
            parts[f"{split}-inputs"].append(chosen)
            parts[f"{split}-owners"].append(np.full(len(chosen), owner))
        owner += 1
    if owner == 0:
        raise ValueError(f"windows: no role speaks enough for windows of {length} characters to train and test on")
    return _joined(parts)


def _joined(parts: dict[str, list[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """All roles in a row; the last character of a window is its target."""
    out: dict[str, NDArray[Any]] = {}
    for split in ("train", "test"):
        seen = np.concatenate(parts[f"{split}-inputs"])
        out[f"{split}-inputs"] = np.ascontiguousarray(seen[:, :-1])
        out[f"{split}-targets"] = seen[:, -1].astype(np.int64)
        out[f"{split}-owners"] = np.concatenate(parts[f"{split}-owners"])
    return out


def words(texts: Iterable[Sequence[str | None]], count: int, symbols: int, length: int) -> NDArray[np.int32]:
    """The first words of each text by their hash, lower case; 0 fills short ones.

    A hash needs no vocabulary, which would have to be learned from all clients' texts.

    Args:
        texts: for each example its columns, joined; None counts as empty.
        count: how many examples there are.
        symbols: how many different tokens, 0 among them.
        length: how many words are kept.
    """
    out = np.zeros((count, length), np.int32)
    for row, columns in enumerate(texts):
        words = _WORD.findall(" ".join(column or "" for column in columns).lower())[:length]
        out[row, : len(words)] = [1 + crc32(word.encode()) % (symbols - 1) for word in words]
    return out
