"""A Ray cluster of two raylets with one processor each, on the loopback address, one of which may be killed.

    PYTHONPATH=tests python -m support.ray_cluster SCENARIO FOLDER

It is run in a process of its own, so that it does not disturb the Ray instance of the tests. The last line it prints is
JSON with what happened.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every raylet on the loopback address
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "1000",  # a dead raylet is noticed after 8 s, not after 15 s
    "RAY_health_check_failure_threshold": "8",
    "OMP_NUM_THREADS": "1",
    "RAY_TMPDIR": (TEMPORARY := mkdtemp(prefix="ray-")),  # or else others would find and join this cluster
}

import ray
import torch
from ray.cluster_utils import Cluster

from undrift import Local, Simulation, make
from undrift.ray import Pool, RayBackend
from undrift.testing import Clinic, fingerprint
from undrift.util.steps import LOG

LOCAL = Local(lr=0.05, weight_decay=1e-3, epochs=1, batch_size=4)
ROUNDS = 4


@dataclass(frozen=True)
class Slow(Clinic):
    """Takes its time, so that a raylet can be killed while it trains."""

    def loss(self, model: Any, batch: Any) -> Any:
        time.sleep(0.05)
        return super().loss(model, batch)


class Two:
    """The cluster: a head and another node, each with one processor."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.head, self.other = self.add(), self.add()
        ray.init(address=self.cluster.address, log_to_driver=False, configure_logging=False)

    def add(self) -> Any:
        """Start a node."""
        options: dict[str, Any] = {"node_ip_address": "127.0.0.1", "num_cpus": 1, "include_dashboard": False}
        options |= {"object_store_memory": 100 * 2**20}
        for left in reversed(range(5)):
            try:
                return self.cluster.add_node(**options)
            except Exception:  # on a busy machine Ray gives up after 30 s
                if not left:
                    raise

    def kill_other(self) -> None:
        """End the other raylet and its workers, by their process numbers: alone, these would live on for seconds."""
        raylet = self.other.all_processes["raylet"][0].process.pid
        for process in (raylet, *map(int, Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split())):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextmanager
def two_raylets() -> Iterator[Two]:
    """The cluster, stopped at the end."""
    made = Two()
    try:
        yield made
    finally:
        ray.shutdown()
        made.cluster.shutdown()
        rmtree(TEMPORARY, ignore_errors=True)


class Heard(logging.Handler):
    """Keeps the warnings of a run."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def rounds(simulation: Simulation, kill: Callable[[], None] | None = None) -> dict[str, Any]:
    """Some rounds; in the second one something may be killed."""
    began, trained, rejected, state = time.monotonic(), [], dict[str, Any](), simulation.start()
    for number in range(ROUNDS):
        if kill is not None and number == 1:
            threading.Timer(0.4, kill).start()
        state, record = simulation.round(state)
        trained.append(list(record.clients))
        rejected |= {str(r.client): r.detail for r in record.rejections if r.client != 1}
    result = {"sha256": fingerprint(state), "seconds": time.monotonic() - began}
    return result | {"trained": trained, "rejected": rejected}


def one_after_the_other(folder: Path) -> dict[str, Any]:
    """A node is lost, with a folder that all share; then states in an object store."""
    heard = Heard()
    LOG.addHandler(heard)
    result: dict[str, Any] = {}
    with two_raylets() as two, Pool(2, address=two.cluster.address) as pool:
        pool.pids()

        def simulation(root: str | Path) -> Simulation:
            backend = RayBackend(pool, chunk=2, root=root)
            return Simulation(make("scaffold"), Slow(), LOCAL, seed=1, depth=1, backend=backend)

        with simulation(folder / "shared") as shared:
            result["shared"] = rounds(shared, two.kill_other) | {"heard": heard.lines}
        with simulation(f"local://{folder}/store") as store:  # one worker is left
            result["store"] = rounds(store)
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    scenario, folder = sys.argv[1:]
    print(json.dumps(globals()[scenario.replace("-", "_")](Path(folder))))
