"""Edge servers with SuperLinks of their own, over TLS: a server, two edge servers, and the nodes of two regions.

`UNDRIFT_NODES` sets how many nodes a region has.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from support.deployment import TOOLS, Deployment, cohorts, outcome, replay, running, until
from undrift.runs.folder.audit import read_log

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.xdist_group("deployment"), *TOOLS]
NODES = int(os.environ.get("UNDRIFT_NODES", "3"))


class Tree(NamedTuple):
    """The deployments of a tree, each with a SuperLink."""

    top: Deployment
    regions: list[Deployment]

    def open_region(self, number: int, method: str) -> None:
        """Start the app of a region, which lets the edge server use its nodes."""
        region = self.regions[number]
        file = region.work / "edge" / "edge.json"
        file.unlink(missing_ok=True)  # of a ServerApp that was killed
        region.submit(algorithm=method)
        until(file.exists, 240)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    folder = tmp_path_factory.mktemp("tree")
    works = [folder / f"region{number}" for number in range(2)]
    with ExitStack() as stack:
        regions = [
            stack.enter_context(running(Deployment(work, NODES, ("--region", str(number), "--regions", "2")), 20))
            for number, work in enumerate(works)
        ]
        below = tuple(word for work in works for word in ("--below", str(work)))
        yield Tree(stack.enter_context(running(Deployment(folder / "top", 2, below), 20)), regions)


def test_two_edge_servers_give_the_bits_of_one_process_with_one_killed(tree: Tree) -> None:
    """In the second round an edge server dies with its SuperLink and its ServerApp, and comes back in that round."""
    method, rounds = "scaffold", 3
    for number in range(2):
        tree.open_region(number, method)
    began = time.monotonic()
    config = {"algorithm": method, "num_rounds": rounds, "deadline": 600.0, "rejoin": 300.0, "pause": 4.0}
    run = tree.top.submit(run="tree", **config)
    until(lambda: tree.top.rounds("tree") == 1, 600)
    seconds = {"first round": time.monotonic() - began}
    tree.top.reaches(run, "node0", 1, 300)
    killed = time.monotonic()
    tree.top.kill("node0")
    for name in ("superlink", "superexec"):
        tree.regions[0].kill(name)
    tree.regions[0].up()
    tree.open_region(0, method)
    tree.top.up()
    seconds["edge server is back"] = time.monotonic() - killed
    accepted, final = outcome(tree.top.finish(run, 900))
    seconds["all"] = time.monotonic() - began
    rows = [json.loads(line) for line in (tree.top.folder("tree") / "metrics.jsonl").read_text().splitlines()]
    print(json.dumps({"nodes": NODES, **seconds, "rounds": [row["seconds"] for row in rows]}))
    assert accepted == cohorts(rounds) and final == replay(method, accepted)
    assert all(len(hosts["clients"]) == 6 for hosts in tree.top.status("tree")["nodes"].values())
    for region in tree.regions:
        path = region.work / "edge" / "audit.jsonl"
        events = [json.loads(line) for line in path.read_text().splitlines()]
        assert read_log(path).head == events[-1]["hash"]
        assert [event["round"] for event in events if event["event"] == "accept"] == [1, 2, 3]
