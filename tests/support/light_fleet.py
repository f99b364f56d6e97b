"""Real SuperNodes that are forked from one process, which imports everything once: twenty fit on a small machine.

python light_fleet.py FILE, where FILE has a list of {"key": ..., "supernode": ..., "superexec": ...} in JSON: the file
of the public key, and the options of the two commands.

Each node is registered, and has a process for its SuperNode and one for its SuperExec, which forks for every task. What
they send is Flower's own.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.cli.app import app as flwr
from flwr.supercore.cli import flower_superexec
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

import undrift.flower  # noqa: F401  once, for all tasks


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
    def Popen(words: list[str], **_: Any) -> None:
        """Run a task."""
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    break
            except ChildProcessError:
                break
        fork(flwr_clientapp, words)


class Nothing:
    """In place of the module subprocess: a SuperNode's SuperExec was started before."""

    @staticmethod
    def Popen(words: list[str]) -> None:
        """Start nothing."""


def main() -> None:
    """Start the nodes, and wait until one ends."""
    nodes = json.loads(Path(sys.argv[1]).read_text())
    for node in nodes:
        _, status = os.waitpid(fork(flwr, ["flwr", "supernode", "register", node["key"], "tls"]), 0)
        assert status == 0, f"{node['key']} was not registered"
    subprocess_executor.subprocess, start_client_internal.subprocess = Tasks, Nothing  # type: ignore[assignment]
    for node in nodes:
        pid = fork(flower_supernode, ["flower-supernode", *node["supernode"]])
        fork(flower_superexec, ["flower-superexec", *node["superexec"], "--parent-pid", str(pid)])
    os.wait()


if __name__ == "__main__":
    main()
