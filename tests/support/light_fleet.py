"""Real SuperNodes that are forked from one process, which imports everything once: twenty fit on a small machine.

python light_fleet.py FILE, where FILE has a list of {"key": ..., "folder": ..., "supernode": ..., "superexec": ...} in
JSON: the file of the public key, the node's own folder, and the options of the two commands.

Each node is registered, and has a process for its SuperNode and one for its SuperExec, which forks for every task; its
file `pids` has their numbers. What they send is Flower's own. A file `trickle` with seconds is the pause before every
object of an upload after the first four. With "later" a node starts when there is a file `start`, and again whenever
there is one.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

from flwr.cli.app import app as flwr
from flwr.supercore.cli import flower_superexec
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

import undrift.flower  # noqa: F401  once, for all tasks

sys.path.append(str(Path(__file__).parents[1]))

from support.slow_supernode import slow_uploads


def fork(run: Callable[[], Any], words: list[str]) -> int:
    """Run a command of Flower's in a forked process; its number."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        sys.argv = words
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Tasks:
    """In place of the module subprocess: a SuperExec forks for every task, and takes note of those that have ended."""

    DEVNULL = -3

    @staticmethod
    def reap() -> None:
        """Take note of processes that have ended."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass

    @staticmethod
    def Popen(words: list[str], **_: Any) -> None:
        """Run a task."""
        Tasks.reap()
        fork(flwr_clientapp, words)


def start(node: dict[str, Any]) -> None:
    """Fork the two processes of a node.

    Args:
        node: its entry in the file.
    """
    folder = Path(node["folder"])

    def pause() -> float | None:
        return float((folder / "trickle").read_text()) if (folder / "trickle").exists() else None

    def supernode() -> None:
        slow_uploads(pause)
        flower_supernode()

    pid = fork(supernode, ["flower-supernode", *node["supernode"]])
    other = fork(flower_superexec, ["flower-superexec", *node["superexec"], "--parent-pid", str(pid)])
    (folder / "pids").write_text(json.dumps([pid, other]))


class Nothing:
    """In place of the module subprocess: a SuperNode's SuperExec was started before."""

    @staticmethod
    def Popen(words: list[str]) -> None:
        """Start nothing."""


def main() -> None:
    """Start the nodes, and wait until one ends; those that start later may end and start again."""
    nodes = json.loads(Path(sys.argv[1]).read_text())
    for node in nodes:
        _, status = os.waitpid(fork(flwr, ["flwr", "supernode", "register", node["key"], "tls"]), 0)
        assert status == 0, f"{node['key']} was not registered"
    subprocess_executor.subprocess, start_client_internal.subprocess = Tasks, Nothing  # type: ignore[assignment]
    later = [node for node in nodes if node.get("later")]
    for node in nodes:
        if node not in later:
            start(node)
    while later:
        Tasks.reap()
        for node in later:
            if (wanted := Path(node["folder"]) / "start").exists():
                wanted.unlink()
                start(node)
        sleep(0.2)
    os.wait()


if __name__ == "__main__":
    main()
