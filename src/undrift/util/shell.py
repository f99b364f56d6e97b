"""Paths in the commands that messages suggest."""

from pathlib import Path
from shlex import quote


def as_argument(path: Path) -> str:
    """A path as an argument of a command: quoted for a shell, and with "./" before a dash, so that it is no option.

    Args:
        path: a file or folder.

    Example:
        >>> as_argument(Path("runs/a b")), as_argument(Path("-weird")), as_argument(Path("runs/mine"))
        ("'runs/a b'", './-weird', 'runs/mine')
    """
    text = path.as_posix()
    return quote(f"./{text}" if text.startswith("-") else text)
