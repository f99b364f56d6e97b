"""The cost of the live lens: its share of a run's time, and the memory of a measurement with many clients.

The share is that of measuring in every round of a run on Fashion-MNIST with the preset `papers`.

    python benchmarks/speed/lens.py --json > benchmarks/speed/results/lens.json

Memory is in multiples of a ResNet-18's 11.2 million parameters; each figure comes from its own process.

`look` is a run with `lens_every = 1` and that many `lens_clients`, each with four images of 16 x 16: the peak resident
set while the driver measures, minus that just before. `gradients` is the same run without the streams. `look-returned`
is `look` with an allocator that returns freed memory at once, so that a measurement cannot use what training freed; in
`look-ray` a Ray worker trains, so that the driver measures without having trained. The first measurement loads code;
with few clients the second is reported, too. `bands`, `spread`, `gram` and `all` are the streams alone, beyond the
caller's one vector, with the allocator of `look-returned`.

    python benchmarks/speed/lens.py --memory --json > benchmarks/speed/results/lens-memory.json
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from step import environment
from undrift.core.model.flat_model import layout_of
from undrift.core.records.types import ServerState
from undrift.data import Dataset, DataTask, Split
from undrift.data.partitions.draw import parse, partition
from undrift.engine.round.simulation import Record
from undrift.lens import BandStream, GramStream, SpreadStream, sweep
from undrift.models import resnet18
from undrift.observe.live import Live
from undrift.runs import Config, start
from undrift.runs.loop import run
from undrift.runs.setup.choose_model import model_maker
from undrift.runs.setup.prepare import Setup

STREAMS: dict[str, tuple[Callable[..., Any], ...]] = {
    "bands": (BandStream,),
    "spread": (SpreadStream,),
    "gram": (GramStream,),
    "all": (BandStream, SpreadStream, GramStream),
}
LOOKS = ("look", "gradients", "look-returned", "look-ray", "look-ray-returned")
PLAN = {10: (*LOOKS, *STREAMS), 100: ("all",), 1000: ("look",)}
"""Number of clients -> what is measured with them."""


def resident(reset: bool = False) -> tuple[int, int]:
    """The memory of this process in bytes, now and at its peak; `reset` resets the peak."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    memory = {line[0]: int(line[1]) * 1024 for line in lines if line and line[0] in ("VmRSS:", "VmHWM:")}
    return memory["VmRSS:"], memory["VmHWM:"]


class Weighed(Live):
    """The live lens, with its memory measured."""

    weights: ClassVar[list[dict[str, float]]] = []
    bare = False  # whether to compute gradients and nothing else

    def after(self, state: ServerState, record: Record) -> dict[str, float]:
        """Measure as the live lens does, and record time and memory."""
        before, begun = resident(reset=True)[0], time.perf_counter()
        row = {} if self.bare else super().after(state, record)
        if self.bare:
            sweep(self.job, state, self.clients, lambda _: lambda *_: None, self.model)
        seconds, model = time.perf_counter() - begun, 4 * len(state.params)
        now, peak = resident()
        self.weights.append(
            {
                "models": round((peak - before) / model, 2),
                "kept": round((now - before) / model, 2),
                "seconds_per_client": round(seconds / len(self.clients), 3),
            }
        )
        return row


def noise(clients: int) -> Dataset:
    """Four small images for each client."""
    draw = torch.Generator().manual_seed(0)
    train, test = (
        Split(torch.randint(0, 256, (n, 3, 16, 16), generator=draw, dtype=torch.uint8), torch.arange(n) % 10)
        for n in (4 * clients, 20)
    )
    return Dataset("noise", "image", train, test, 10, (0.5,) * 3, (0.29,) * 3, "noise")


def look(clients: int, name: str) -> dict[str, Any]:
    """Run ResNet-18 with two clients in a round and measure all clients; twice if there are few."""
    data, rounds = noise(clients), 1 if clients > 100 else 2
    settings: dict[str, Any] = {"rounds": rounds, "clients": clients, "cohort": 2, "partition": "iid"}
    settings |= {"model": "resnet18", "local": {"preset": "papers", "batch_size": 4, "epochs": 1}}
    settings |= {"engine": {"name": "ray" if "ray" in name else "local", "workers": 1}}
    config = Config.build({**settings, "output": {"lens_every": 1, "lens_clients": clients}})
    dealt = partition(parse("iid"), data.train.targets.numpy(), clients=clients, seed=0)
    task = DataTask(data, dealt.clients, model_maker("resnet18", data))
    run.Live, Weighed.bare = Weighed, name == "gradients"  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        start(config, Path(folder) / "run", setup=Setup(config, config.algorithm(), task, dealt, config.local))
    first, *others = Weighed.weights
    return {**first, **({"second": others[0]["models"]} if others else {})}


def feed(clients: int, name: str) -> dict[str, Any]:
    """Feed streams with random vectors and read the results; memory in models, and seconds per client."""
    with torch.device("meta"):
        layout = layout_of(resnet18())
    v, draw = torch.empty(layout.size).uniform_(), torch.Generator().manual_seed(0)
    before, spent = resident(reset=True)[0], 0.0
    streams = [kind(layout) for kind in STREAMS[name]]
    for client in range(clients):
        v.uniform_(-1, 1, generator=draw)
        begun = time.perf_counter()
        for stream in streams:
            stream.add(client, v)
        spent += time.perf_counter() - begun
    for stream in streams:
        for reading in ("consensus", "drift", "spread", "cosines", "divergence"):
            getattr(stream, reading, list)()
    models = (resident()[1] - before) / (4 * layout.size)
    return {"models": round(models, 2), "seconds_per_client": round(spent / clients, 3)}


def memory(clients: list[int], parts: list[str]) -> list[dict[str, Any]]:
    """Measure each figure in its own process."""
    results = []
    for count, name in [(n, part) for n in clients for part in PLAN[n] if part in parts]:
        given_back = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)} if name in STREAMS or "returned" in name else {}
        command = [sys.executable, __file__, "--child", name, "--clients", str(count)]
        done = subprocess.run(command, env={**os.environ, **given_back}, check=True, stdout=subprocess.PIPE, text=True)
        results.append({"clients": count, "part": name, **json.loads(done.stdout.splitlines()[-1])})
    return results


def share(rounds: int) -> dict[str, Any]:
    """The live lens's seconds in every round of a run, and their share of the run's time."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.build({"rounds": rounds, "local": {"preset": "papers"}, "output": {"lens_every": 1}})
        rows: list[dict[str, Any]] = []
        start(config, Path(folder) / "run", rows.append)
    looked = sum(row["lens_seconds"] for row in rows)
    whole = looked + sum(row["seconds"] + row["evaluate_seconds"] for row in rows)
    every = Config().output.lens_every
    shares = {"rounds": rounds, "clients": config.output.lens_clients, "seconds_per_look": round(looked / rounds, 4)}
    return {
        **shares,
        "share_every_round": round(looked / whole, 4),
        f"share_every_{every}": round(looked / whole / every, 4),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the run that is timed")
    parser.add_argument(
        "--memory", action="store_true", help="measure memory instead of time; 1,000 clients take an hour"
    )
    parser.add_argument(
        "--clients", type=int, nargs="*", choices=PLAN, default=list(PLAN), help="how many clients to measure"
    )
    parser.add_argument("--parts", nargs="*", choices=PLAN[10], default=list(PLAN[10]), help="what to measure")
    parser.add_argument("--child", choices=PLAN[10], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.child:
        print(json.dumps((feed if options.child in STREAMS else look)(options.clients[0], options.child)))
        return
    results: dict[str, Any] = {"environment": environment(options.rounds, 1, "glibc")}
    if options.memory:
        results["memory"] = memory(options.clients, options.parts)
    else:
        results["share"] = share(options.rounds)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for row in results.get("memory", [results.get("share")]):
        print(", ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
