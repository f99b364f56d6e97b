"""A round of a model of a hundred million parameters: peak memory, seconds and bytes on the wire.

Three clients with one step each, in this process or on one Ray worker. Memory is counted in multiples of the model,
without what Python, torch and Ray take before there is a model. Each part runs in its own process.

    python benchmarks/speed/scale.py --json > benchmarks/speed/results/scale.json
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from processes import run_part
from undrift import Local, Simulation, TensorTask, make
from undrift.core.server import step as server
from undrift.core.server import wire

CLIENTS = 3
LOCAL = Local(lr=0.05, batch_size=8)
PARTS = ("fedavg:here", "fedavg:ray", "fedsam:here", "scaffold:here", "fedfft-d:here")

RETURNED = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Freed tensors go back to the system at once."""


class Wide(nn.Sequential):
    """A perceptron with hidden layers of one width."""

    def __init__(self, width: int, layers: int) -> None:
        hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
        super().__init__(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def task(width: int) -> TensorTask:
    """Random rows; one batch for each client, of different sizes, so that weights differ."""
    draw = torch.Generator().manual_seed(0)
    sizes = [4, 6, 8]
    inputs = torch.randn(sum(sizes), 64, generator=draw)
    targets = torch.randint(10, (sum(sizes),), generator=draw)
    return TensorTask(lambda: Wide(width, 6), inputs, targets, torch.arange(sum(sizes)).split(sizes))


def resident(pid: int, name: str) -> int:
    """A memory figure of a process in bytes: VmRSS, the size now, or VmHWM, the peak."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split(f"{name}:")[1].split()[0])


def measure(method: str, where: str, width: int) -> dict[str, Any]:
    """One round of a method, the first, with the building of models."""
    torch.set_num_threads(1)
    pids, backend = {"server": os.getpid()}, None
    with ExitStack() as stack:
        if where == "ray":
            from undrift.ray import Pool, RayBackend

            pool = stack.enter_context(Pool(1))
            pids["worker"], backend = pool.pids()[0], RayBackend(pool)
        before = {name: resident(pid, "VmRSS") for name, pid in pids.items()}
        simulation = stack.enter_context(
            Simulation(make(method), task(width), LOCAL, backend=backend, failures="raise")
        )
        phases: dict[str, dict[str, float]] = {}

        @contextmanager
        def phase(name: str) -> Iterator[None]:
            for pid in pids.values():
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # begin a new peak
            begun = time.perf_counter()
            yield
            seconds = time.perf_counter() - begun
            phases[name] = {"seconds": seconds, **{who: resident(pid, "VmHWM") for who, pid in pids.items()}}

        with phase("start"):
            state = simulation.start()
        sent = server.send(simulation.job.algorithm, state, simulation.job.setting)
        with phase("clients"):
            partial = simulation.collect(sent, range(CLIENTS), state.accepted)
        with phase("server step"):
            simulation.close(state, sent, partial.total)
        traffic = {
            "broadcast": sum(x.nbytes for x in wire.flatten(sent).values()),
            "reply": sum(x.nbytes for x in partial.flatten()[0].values()),
        }
    size = len(state.params)
    models = {
        name: {who: round((found[who] - before[who]) / (4 * size), 2) for who in pids} for name, found in phases.items()
    }
    return {
        "method": method,
        "where": where,
        "parameters": size,
        "peak_in_models": {who: max(found[who] for found in models.values()) for who in pids},
        "peak_in_models_by_phase": models,
        "seconds": {name: round(found["seconds"], 2) for name, found in phases.items()},
        "bytes_per_parameter": {name: round(count / size, 3) for name, count in traffic.items()},
        "megabytes_before": {name: round(x / 2**20) for name, x in before.items()},
    }


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--width", type=int, default=4096, help="width of the layers; 4096 gives 1e8 parameters")
    parser.add_argument("--part", help="measure one part in this process: fedavg:here or fedavg:ray")
    arguments = parser.parse_args()
    if arguments.part:
        method, _, where = arguments.part.partition(":")
        print(json.dumps(measure(method, where, arguments.width)))
        return
    width = ["--width", str(arguments.width)]
    runs = [run_part(__file__, ["--part", name, *width], RETURNED) for name in PARTS]
    machine = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    print(json.dumps({"runs": runs, "environment": {**machine, "processors": os.cpu_count()}}, indent=2))


if __name__ == "__main__":
    main()
