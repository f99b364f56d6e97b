"""Text as tokens: characters of a play with a client per role, and hashed words."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

ALPHABET = "\n !\"&'(),-." + digits + ":;>?" + ascii_uppercase + "[]" + ascii_lowercase + "}"
"""The 80 characters of LEAF's Shakespeare; all others map to one further symbol."""

UNKNOWN = len(ALPHABET)
TRAINING = 0.8
CHUNK = 10_000  # texts encoded at once

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
    """The text of each role, in the order of first appearance; line ends and runs of blanks become one blank.

    A speech begins with a line "ROLE:" and ends at a blank line.
    """
    said: dict[str, list[str]] = {}
    for speech in re.split(r"\n\s*\n", play):
        head, _, words = speech.strip().partition("\n")
        if head.endswith(":") and words:
            said.setdefault(head[:-1], []).append(words)
    return {role: " ".join(" ".join(speeches).split()) for role, speeches in said.items()}


def window_bounds(windows: int, stride: int, length: int) -> tuple[int, int]:
    """Where training ends and testing begins, in time; no test input has a character of a training input.

    The first test input may begin with the last target of training. With stride 1 this is LEAF's gap of length - 1
    windows.

    Example:
        >>> window_bounds(1000, 1, 80)
        (800, 879)
    """
    end = int(TRAINING * windows)
    return end, end - 1 + -(-length // stride)


def windows(play: str, stride: int = 1, length: int = 80) -> dict[str, NDArray[Any]]:
    """Windows of characters, each with the next character, for every role with enough text to be tested.

    Args:
        play: the text.
        stride: the distance between the starts of two windows; 1 gives all windows.
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
        end, begin = window_bounds(count, stride, length)
        if end < 1 or begin >= count:
            continue
        seen = np.lib.stride_tricks.sliding_window_view(encode(text), length + 1)[::stride]
        for split, chosen in (("train", seen[:end]), ("test", seen[begin:])):
            parts[f"{split}-inputs"].append(chosen)
            parts[f"{split}-owners"].append(np.full(len(chosen), owner))
        owner += 1
    if owner == 0:
        raise ValueError(
            f"windows: no role has enough text for windows of {length} characters to train and test on; shorten them"
        )
    return _join_roles(parts)


def characters(texts: Iterable[str], count: int, length: int) -> NDArray[np.uint8]:
    """The symbols of texts that all have the same length, in LEAF's alphabet.

    Args:
        texts: the texts.
        count: how many there are.
        length: characters in a text.

    Example:
        >>> characters(["Ah", "ah"], 2, 2).tolist()
        [[25, 60], [53, 60]]
    """
    out = np.empty((count, length), np.uint8)
    rest = iter(texts)
    for begin in range(0, count, CHUNK):
        some = list(islice(rest, CHUNK))
        odd = next((text for text in some if len(text) != length), None)
        if odd is not None:
            raise ValueError(
                f"characters: every text must have {length} characters, got {len(odd)}: {odd[:100]!r}; "
                "write the files with LEAF's own preprocess.sh"
            )
        out[begin : begin + len(some)] = encode("".join(some)).reshape(-1, length)
        if (out[begin : begin + len(some)] == UNKNOWN).any():
            foreign = sorted(set("".join(some)) - set(ALPHABET))
            raise ValueError(
                f"characters: {''.join(foreign)!r} are not in LEAF's alphabet of {UNKNOWN} characters; "
                "write the files with LEAF's own preprocess.sh"
            )
    return out


def _join_roles(parts: dict[str, list[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The windows of all roles, concatenated; the last character of a window is its target."""
    out: dict[str, NDArray[Any]] = {}
    for split in ("train", "test"):
        seen = np.concatenate(parts[f"{split}-inputs"])
        out[f"{split}-inputs"] = np.ascontiguousarray(seen[:, :-1])
        out[f"{split}-targets"] = seen[:, -1].astype(np.int64)
        out[f"{split}-owners"] = np.concatenate(parts[f"{split}-owners"])
    return out


def words(texts: Iterable[Sequence[str | None]], count: int, symbols: int, length: int) -> NDArray[np.int32]:
    """The hashes of the first words of each text in lower case, padded with 0.

    A hash needs no vocabulary, which would have to be learned from all clients' texts.

    Args:
        texts: the text columns of each example, which are joined; None counts as empty.
        count: how many examples there are.
        symbols: how many different tokens there are, including 0.
        length: how many words to keep.
    """
    out = np.zeros((count, length), np.int32)
    for row, columns in enumerate(texts):
        words = _WORD.findall(" ".join(column or "" for column in columns).lower())[:length]
        out[row, : len(words)] = [1 + crc32(word.encode()) % (symbols - 1) for word in words]
    return out
