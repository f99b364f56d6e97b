"""Rounds with 5, 10 and 20 real SuperNodes on one SuperLink over TLS: how long they last, what a node costs the link.

The nodes are forked from one process, so that twenty fit on a small machine; what they send is Flower's own. Each has
one client of a small task. One deployment has them all, and grows.

    python benchmarks/speed/real_nodes.py 5 10 20 > benchmarks/speed/results/real_nodes.jsonl
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from support.deployment import Deployment, LightDeployment, deploy, until
from support.new_app import copy_app

ROUNDS, DEADLINE = 3, 240.0


def spent(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(it: Deployment, nodes: int, most: int) -> dict[str, Any]:
    """A run of three rounds on all nodes."""
    run = f"nodes{nodes}"
    config: dict[str, Any] = {"run": run, "algorithm": "fedavg", "num_rounds": ROUNDS, "cohort": most, "nodes": nodes}
    link = deploy.alive(it.work, "superlink")
    before, began = spent(link), time.monotonic()
    it.submit(**config, deadline=DEADLINE, quorum=0.9 * nodes / most, wait=600.0)
    until(lambda: it.rounds(run) == ROUNDS, 1200, pause=2.0)
    rows = [json.loads(line) for line in (it.folder(run) / "metrics.jsonl").read_text().splitlines()]
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{link}/status").read_text().splitlines() if ":\t" in line
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "nodes": nodes,
        "round_seconds": [round(row["seconds"], 1) for row in rows],
        "accepted": [row["clients"] for row in rows],
        "all_seconds": round(time.monotonic() - began, 1),
        "superlink_processor_seconds_per_node_and_round": round((spent(link) - before) / nodes / ROUNDS, 2),
        "superlink_megabytes": round(int(status["VmRSS"].split()[0]) / 1024),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def main() -> None:
    """Measure each number of nodes, and print a line of JSON for it."""
    numbers = sorted(map(int, sys.argv[1:])) or [5, 10, 20]
    with tempfile.TemporaryDirectory() as scratch:
        most, first = numbers[-1], 0
        app = copy_app(Path(scratch) / "app-nodes", most)
        it = LightDeployment(Path(scratch) / "nodes", nodes=most, app=app, clients=most)
        try:
            it.script("up", "--nodes", "0")
            for nodes in numbers:
                it.add(first, nodes)
                first = nodes
                print(json.dumps(measure(it, nodes, most)), flush=True)
        finally:
            it.down()


if __name__ == "__main__":
    main()
