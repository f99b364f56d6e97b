"""A SuperExec that forks for every task of a node instead of starting a process: torch and Undrift are imported once.

`light_path` writes it as `flower-superexec` into a folder that comes first in the PATH of a SuperNode, which itself and
whose messages are Flower's own.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def light_path(folder: Path) -> dict[str, str]:
    """The environment of a SuperNode that uses this file."""
    folder.mkdir(exist_ok=True)
    command = folder / "flower-superexec"
    command.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    command.chmod(0o700)
    return {"PATH": f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def fork(words: list[str], **_: Any) -> None:
    """Run a task in a forked process."""
    if os.fork():
        return
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.argv = words
        flwr_clientapp()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.superexec.executor import subprocess_executor
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    import undrift.flower  # noqa: F401  once, for all tasks

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended tasks leave nothing behind
    subprocess_executor.subprocess = type("Forking", (), {"Popen": fork, "DEVNULL": subprocess.DEVNULL})
    flower_superexec()
