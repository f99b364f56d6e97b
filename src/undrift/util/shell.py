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


DEPLOYMENT_RECORD = "deployment.json"
"""The file that the folder of a deployment has, and that of no other run."""


SERVER_LOG, STATUS = "log.txt", "status.json"
"""What the server of a deployment logs, and its last status, in the run's folder."""


def resume_command(folder: Path) -> str:
    """The command that resumes the run in a folder.

    Args:
        folder: the run's folder.
    """
    deployed = (folder / DEPLOYMENT_RECORD).is_file()
    return "the same flwr run" if deployed else f"undrift resume {as_argument(folder)}"
