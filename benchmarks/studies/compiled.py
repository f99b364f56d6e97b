"""A compiled model against the plain one: ResNet-20, the accuracy it reaches, the time of a step and of compiling.

CIFAR-10, 1,600 training examples over 4 clients (IID), all in each of 12 rounds, one epoch, batches of 50, one
thread. The model is compiled by the task's `make`, once in this process; "first_step_seconds" has the compilation.

    python benchmarks/studies/compiled.py --json > benchmarks/studies/results/compiled.json
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from shared import first_examples
from undrift import Local, Simulation
from undrift.core.model.flat_model import bind
from undrift.core.model.oracle import Oracle
from undrift.core.model.random import generator
from undrift.data import Dataset, DataTask, load
from undrift.models import resnet

LOCAL = Local(lr=0.1, epochs=1, batch_size=50)
CLIENTS, COHORT, ROUNDS, EXAMPLES, TESTS, STEPS = 4, 4, 12, 1600, 1000, 12


def plain() -> nn.Module:
    """ResNet-20."""
    return resnet(20)


def compiled() -> nn.Module:
    """The same, compiled; batches of any size share one graph."""
    return torch.compile(resnet(20), dynamic=True)  # type: ignore[return-value]


def steps(task: DataTask) -> tuple[float, float]:
    """Seconds of the first gradient, and the processor's seconds of the others, their median."""
    model = bind(task.model().train())
    oracle = Oracle(model, lambda batch: task.loss(model.module, batch), lambda name: generator(0, 0, 0, name))
    batch, times = next(iter(task.batches(0, LOCAL.batch_size, generator(0, 0, 0, "batches")))), []
    for step in range(STEPS):
        oracle.next(step, batch)
        clock = time.perf_counter if step == 0 else time.process_time  # compilers are processes of their own
        begun = clock()
        model.w.sub_(oracle.gradient(), alpha=0.01)
        times.append(clock() - begun)
    return times[0], statistics.median(times[2:])


def measured(dataset: Dataset, make: Callable[[], nn.Module]) -> dict[str, Any]:
    """One kind of model: times, and the accuracy of a run."""
    clients = [torch.arange(i, EXAMPLES, CLIENTS).numpy() for i in range(CLIENTS)]
    task = DataTask(dataset, clients, make)
    first, later = steps(task)
    begun = time.perf_counter()
    simulation = Simulation("fedavg", task, LOCAL, cohort=COHORT)
    state = simulation.run(ROUNDS)
    seconds = time.perf_counter() - begun
    row = {"first_step_seconds": round(first, 2), "step_milliseconds": round(1000 * later, 1)}
    score = DataTask(dataset, clients, plain).test(simulation.module(state))
    return {
        **row,
        "accuracy": round(score.accuracy, 4),
        "test_loss": round(score.loss, 4),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args().json
    torch.set_num_threads(1)
    dataset = first_examples(load("cifar10"), EXAMPLES, TESTS)
    out: dict[str, Any] = {"torch": torch.__version__, "machine": platform.machine(), "threads": 1}
    out |= {"plain": measured(dataset, plain), "compiled": measured(dataset, compiled)}
    out["step_time_ratio"] = round(out["compiled"]["step_milliseconds"] / out["plain"]["step_milliseconds"], 2)
    print(json.dumps(out, indent=2) if as_json else out)


if __name__ == "__main__":
    main()
