"""Many small clients at once: processor time of a client's round, one after the other and together.

Three ways take turns: a bare PyTorch loop, a worker with `together` = 1, and workers with larger groups. The minimum
over the repetitions counts, in processor time of one thread.

    python benchmarks/speed/together.py --json benchmarks/speed/results/together.json
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from undrift import Local, Simulation, TensorTask, make
from undrift.core.server.step import send
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker import Worker


def logistic() -> nn.Module:
    """Logistic regression, 7,850 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def mlp() -> nn.Module:
    """One hidden layer, 59,635 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 75), nn.ReLU(), nn.Linear(75, 10))


def cnn() -> nn.Module:
    """Two convolutions, 58,618 parameters."""
    first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(784, 72), nn.ReLU(), nn.Linear(72, 10))


MODELS = {"logistic": logistic, "mlp": mlp, "cnn": cnn}


def bare(task: TensorTask, clients: int, batch: int, lr: float) -> Callable[[], object]:
    """The same work written out: one epoch of SGD for each client, and the mean of the models."""
    model = task.model()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def work() -> list[torch.Tensor]:
        total = [torch.zeros_like(p) for p in start]
        for client in range(clients):
            with torch.no_grad():
                for p, value in zip(model.parameters(), start, strict=True):
                    p.copy_(value)
            own = task.clients[client]
            for chosen in torch.split(own[torch.randperm(len(own))], batch):
                optimizer.zero_grad()
                cross_entropy(model(task.inputs[chosen]), task.targets[chosen]).backward()
                optimizer.step()
            with torch.no_grad():
                for whole, p in zip(total, model.parameters(), strict=True):
                    whole.add_(p)
        return total

    return work


def served(task: TensorTask, local: Local, clients: int) -> Callable[[], object]:
    """A worker's round: training, checks and exact sums."""
    job = Job(make("fedavg"), task, local)
    worker, sent = Worker(job), send(job.algorithm, Simulation(job.algorithm, task, local).start(), job.setting)
    return lambda: worker.serve(sent, range(clients), {}, clients)


def measure(name: str, clients: int, examples: int, batch: int, groups: list[int], repeats: int) -> dict[str, object]:
    """Milliseconds per client of every way."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(clients * examples, 1, 28, 28, generator=draw)
    targets = torch.randint(0, 10, (clients * examples,), generator=draw)
    task = TensorTask(MODELS[name], inputs, targets, torch.arange(clients * examples).view(clients, -1))
    local = Local(lr=0.05, batch_size=batch)
    ways = {"bare": bare(task, clients, batch, local.lr), "1": served(task, local, clients)}
    ways |= {str(size): served(task, replace(local, together=size), clients) for size in groups}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for way, work in ways.items():
            begun = time.process_time()
            work()
            best[way] = min(best[way], time.process_time() - begun)
    row: dict[str, object] = {"model": name, "clients": clients, "examples": examples, "batch": batch}
    row["ms_per_client"] = {way: round(1e3 * x / clients, 3) for way, x in best.items()}
    row["times_bare"] = {way: round(best["bare"] / x, 2) for way, x in best.items()}
    return row


def main() -> None:
    """Measure all models and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--examples", type=int, default=60)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--groups", type=int, nargs="*", default=[10, 25, 50])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in args.models:
        rows.append(measure(name, args.clients, args.examples, args.batch, args.groups, args.repeats))
        print(json.dumps(rows[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
