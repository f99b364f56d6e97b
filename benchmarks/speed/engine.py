"""The cost of the engines: Ray's round against Flower's own simulation, training throughput, the server's memory.

Every figure is a ratio of two sides measured in one run of this file, on two workers. Each part runs in its own
process, so that its memory and its Ray instance do not affect the next.

    python benchmarks/speed/engine.py --json > benchmarks/speed/results/engine.json
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from processes import run_part
from undrift.core.records.types import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.models import CNN5
from undrift.planning.calibrate import EmptyTask
from undrift.util.system import resident_peak

SIZES = {"60k": 60_000, "11m": 11_000_000}
REPEATED = {"60k": 3, "11m": 1}
"""Pairs of runs, one after the other, of each size."""
TRAINING = Local(lr=0.01, epochs=1, batch_size=48)
STEPS = 10


def images(clients: int) -> TensorTask:
    """Random CIFAR-shaped data, some steps for every client."""
    draw = torch.Generator().manual_seed(0)
    count = STEPS * TRAINING.batch_size
    inputs = torch.randn(count, 3, 32, 32, generator=draw)
    return TensorTask(CNN5, inputs, torch.randint(10, (count,), generator=draw), [torch.arange(count)] * clients)


def ray_rounds(task: Any, clients: int, rounds: int, local: Local) -> list[float]:
    """Seconds of each round on two Ray workers, after a warm-up round."""
    from undrift.algorithms import fedavg
    from undrift.engine.round.simulation import Simulation
    from undrift.ray import Pool, RayBackend

    seconds = []
    with Pool(2) as pool, Simulation(fedavg(), task, local, cohort=clients, backend=RayBackend(pool)) as simulation:
        state = simulation.run(1)
        for _ in range(rounds):
            begin = time.perf_counter()
            state = simulation.run(1, state)
            seconds.append(time.perf_counter() - begin)
    return seconds


def population_rounds(method: str, registered: str, sampled: str) -> dict[str, Any]:
    """Two rounds with few of many clients, a model of 1,000 parameters: time per sampled client, peak memory."""
    from undrift.algorithms import make
    from undrift.engine.round.simulation import Simulation
    from undrift.ray import Pool, RayBackend

    task = EmptyTask(1000, int(registered))
    backend = RayBackend(pool := Pool(2))
    with pool, Simulation(make(method), task, Local(), cohort=int(sampled), backend=backend) as simulation:
        workers, begin = pool.pids(), time.perf_counter()
        simulation.run(2)
        seconds = time.perf_counter() - begin
        peaks = [_peak(pid) for pid in [os.getpid(), *workers]]
    return {
        "method": method,
        "registered": int(registered),
        "sampled": int(sampled),
        "ms_per_sampled_client": round(1000 * seconds / (2 * int(sampled)), 3),
        "server_megabytes": round(peaks[0]),
        "worker_megabytes": round(max(peaks[1:])),
    }


def ray_start() -> dict[str, Any]:
    """Seconds of each part of a start, and the resident megabytes of Ray's processes after a round of ten visits."""
    begin = time.perf_counter()
    from undrift.engine.round.simulation import Simulation
    from undrift.ray import Pool, RayBackend

    imported = time.perf_counter()
    with Pool(2) as pool:
        started = time.perf_counter()
        workers = pool.pids()
        ready = time.perf_counter()
        with Simulation("fedavg", images(10), TRAINING, cohort=10, backend=RayBackend(pool)) as simulation:
            simulation.run(1)
            first = time.perf_counter()
            found = {"driver": _resident(os.getpid()), "workers": sum(map(_resident, workers))}
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                name = next((name for name, word in SERVICES.items() if word in words), None)
                if name is not None:
                    found[name] = found.get(name, 0.0) + _resident(int(path.parent.name))
    seconds = {
        "import": imported - begin,
        "ray": started - imported,
        "workers": ready - started,
        "round": first - ready,
    }
    return {
        "seconds": {name: round(x, 1) for name, x in seconds.items()},
        "megabytes": {name: round(x) for name, x in found.items()},
    }


SERVICES = {
    "dashboard": "dashboard/dashboard.py",
    "dashboard agent": "ray::DashboardAgent",
    "environment agent": "ray::RuntimeEnvAgent",
    "autoscaler's monitor": "_private/monitor.py",
    "log monitor": "_private/log_monitor.py",
    "control store": "gcs/gcs_server",
    "raylet": "raylet/raylet ",
}
"""Ray's own processes, and a part of their command lines."""


def _resident(pid: int) -> float:
    """The resident size of a process in megabytes, shared memory included."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _peak(pid: int) -> float:
    """The largest resident size of a process so far, in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def flower_rounds(size: int, clients: int, rounds: int) -> list[float]:
    """Seconds of each round of Flower's FedAvg in its own simulation, one node per client, after a first round."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, main, ends = ClientApp(), ServerApp(), []

    @client.train()
    def train(message: Message, _: Any) -> Message:
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)

    @main.main()
    def run(grid: Any, _: Any) -> None:
        def mark(*_: object) -> None:
            ends.append(time.perf_counter())

        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=clients)
        arrays = ArrayRecord({"w": torch.zeros(size)})
        strategy.start(grid, arrays, num_rounds=rounds + 1, evaluate_fn=mark)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(main, client, num_supernodes=clients, backend_config=resources)
    return [b - a for a, b in pairwise(ends[1:])]


def bare_training(clients: int) -> None:
    """The same steps as a client's, one client after the other, in plain PyTorch."""
    torch.set_num_threads(1)
    task = images(clients)
    model = task.model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=TRAINING.lr)
    for client in range(clients):
        for batch in task.batches(client, TRAINING.batch_size, torch.Generator()):
            optimizer.zero_grad()
            task.loss(model, batch).backward()
            optimizer.step()


def bare_processes(clients: int) -> float:
    """Seconds of two bare processes that share the clients, from their first step on."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(2) as pool:
        pool.map(bare_training, [1, 1])
        begin = time.perf_counter()
        pool.map(bare_training, [clients // 2, clients - clients // 2], chunksize=1)
        return time.perf_counter() - begin


def part(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One part, in this process."""
    kind, _, label = name.partition(":")
    if kind == "ray":
        rounds = ray_rounds(EmptyTask(SIZES[label], 100), 100, arguments.rounds, Local())
        return {"seconds": statistics.median(rounds)}
    if kind == "flower":
        return {"seconds": statistics.median(flower_rounds(SIZES[label], 100, arguments.rounds))}
    if kind == "throughput":
        pairs = [(bare_processes(10), min(ray_rounds(images(10), 10, 1, TRAINING))) for _ in range(arguments.rounds)]
        return {"bare": statistics.median(p[0] for p in pairs), "ray": statistics.median(p[1] for p in pairs)}
    if kind == "start":
        return ray_start()
    if kind == "population":
        return population_rounds(*label.split(","))
    ray_rounds(EmptyTask(SIZES["11m"], int(label)), int(label), 1, Local())
    return {"megabytes": resident_peak() / 2**20}


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, or repetitions, per figure")
    parser.add_argument(
        "--part", help="measure one part in this process: ray:60k, flower:11m, throughput, memory:10, start"
    )
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(part(arguments.part, arguments)))
        return

    def measured(name: str) -> dict[str, Any]:
        """One part, in its own process."""
        found: dict[str, Any] = run_part(__file__, ["--part", name, "--rounds", str(arguments.rounds)])
        return found

    result: dict[str, Any] = {}
    for label in SIZES:
        pairs = [[measured(f"{side}:{label}")["seconds"] for side in ("ray", "flower")] for _ in range(REPEATED[label])]
        result[f"ray_over_flower_{label}"] = round(statistics.median(ours / theirs for ours, theirs in pairs), 4)
        result[f"seconds_{label}"] = [{"ray": round(ours, 3), "flower": round(theirs, 3)} for ours, theirs in pairs]
    pair = measured("throughput")
    result["throughput_over_bare"] = round(pair["bare"] / pair["ray"], 3)
    few, many = (measured(f"memory:{count}")["megabytes"] for count in (10, 1000))
    result["memory_1000_over_10"] = round(many / few, 3)
    result["population"] = [
        measured(f"population:{method},{registered},{sampled}")
        for method in ("fedavg", "scaffold")
        for registered, sampled in ((1000, 1000), (1_000_000, 1000), (1_000_000, 10_000))
    ]
    result["start"] = measured("start")
    result["environment"] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "processors": os.cpu_count(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
