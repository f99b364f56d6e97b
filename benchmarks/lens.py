"""What watching costs: the memory of the lens' streams for many clients, and the live probe's share of a run's time.

Memory is the peak beyond the process' own and the caller's one vector, in multiples of a ResNet-18's 11.2 million
parameters, each stream in a process of its own; `live` is what a run uses every few rounds. The share is that of
looking in every round of a run on Fashion-MNIST with all settings left at their defaults.

    python benchmarks/lens.py --json > benchmarks/results/lens.json
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from step import environment
from undrift.experiment import Config, start
from undrift.lens import BandStream, GramStream, SpreadStream
from undrift.models import resnet18
from undrift.vector import Layout

STREAMS: dict[str, tuple[Callable[..., Any], ...]] = {
    "live": (BandStream,),
    "spread": (SpreadStream,),
    "gram": (GramStream,),
    "all": (BandStream, SpreadStream, GramStream),
}


def peak() -> int:
    """The largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def feed(layout: Layout, kinds: tuple[Callable[..., Any], ...], clients: int) -> dict[str, float]:
    """Give streams one vector after the other, made on the fly, and read them; memory in models, and seconds each."""
    v, draw = torch.empty(layout.size).uniform_(), torch.Generator().manual_seed(0)
    before, spent = peak(), 0.0
    streams = [kind(layout) for kind in kinds]
    for client in range(clients):
        v.uniform_(-1, 1, generator=draw)
        begun = time.perf_counter()
        for stream in streams:
            stream.add(client, v)
        spent += time.perf_counter() - begun
    for stream in streams:
        for reading in ("consensus", "drift", "spread", "cosines", "divergence"):
            getattr(stream, reading, list)()
    models = (peak() - before) / (4 * layout.size)
    return {"models": round(models, 2), "seconds_per_client": round(spent / clients, 3)}


def child(name: str, clients: int) -> None:
    """Measure in this process, after one small turn that loads the libraries' code."""
    torch.set_num_threads(1)
    feed(Layout(("a", "b"), ((512, 512), (64,))), STREAMS[name], 3)
    with torch.device("meta"):  # a model in memory would raise the peak before anything is measured
        parameters = list(resnet18(stem="imagenet").named_parameters())
    layout = Layout(tuple(n for n, _ in parameters), tuple(tuple(p.shape) for _, p in parameters))
    print(json.dumps(feed(layout, STREAMS[name], clients)))


def memory(clients: int, names: list[str]) -> dict[str, Any]:
    """Each in a process of its own; freed memory goes back, so that it does not count."""
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    told: dict[str, Any] = {"clients": clients}
    for name in names:
        command = [sys.executable, __file__, "--child", name, "--clients", str(clients)]
        told[name] = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    return told


def share(rounds: int) -> dict[str, Any]:
    """The live probe's seconds in every round of a run, and their share of the run's."""
    with tempfile.TemporaryDirectory() as aside:
        config = Config.build({"rounds": rounds, "output": {"lens_every": 1}})
        found: list[dict[str, Any]] = []
        start(config, Path(aside) / "run", found.append)
    looked = sum(row["lens_seconds"] for row in found)
    whole = looked + sum(row["seconds"] + row["evaluate_seconds"] for row in found)
    every = Config().output.lens_every
    told = {"rounds": rounds, "clients": config.output.lens_clients, "seconds_per_look": round(looked / rounds, 4)}
    return {
        **told,
        "share_every_round": round(looked / whole, 4),
        f"share_every_{every}": round(looked / whole / every, 4),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--clients", type=int, default=100, help="how many vectors the streams take")
    parser.add_argument("--rounds", type=int, default=5, help="of the run that is watched; 0 leaves it out")
    parser.add_argument("--streams", nargs="*", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--child", choices=STREAMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.clients)
        return
    told: dict[str, Any] = {"memory": memory(options.clients, options.streams)}
    if options.rounds:
        told["share"] = share(options.rounds)
    told["environment"] = environment(options.rounds, 1, "gives memory back")
    if options.json:
        print(json.dumps(told, indent=1))
        return
    for part, found in told.items():
        print(part, ", ".join(f"{name} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
