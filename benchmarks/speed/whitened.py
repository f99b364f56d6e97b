"""The cost of a local step of `whitened` against one of FedAvg, for some refresh periods and numbers of patches.

All contenders run in one process, one after the other in every repetition, and a ratio is the median over the
repetitions with its quartiles: a busy machine slows both sides of it. A repetition is a visit of 20 steps, so that a
factor that is kept for 5, 10 or 20 steps is made 4 times, twice or once.

    python benchmarks/speed/whitened.py --json > benchmarks/speed/results/whitened.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from step import environment, through_train
from undrift import make
from undrift.compose.grammar import parse
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.models import MLP, SmallCNN

BATCH, STEPS = 20, 20
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "fashion-mlp": (lambda: MLP(784, 10), (1, 28, 28)),
    "cifar-mlp": (lambda: MLP(3072, 10), (3, 32, 32)),
    "fashion-cnn": (lambda: SmallCNN(10, 1, 28), (1, 28, 28)),
    "cifar-cnn": (lambda: SmallCNN(10, 3, 32), (3, 32, 32)),
}
"""The models and image shapes of the study with the strict protocol."""
SETTINGS = ((1, 64), (1, 16), (5, 64), (5, 16), (10, 16), (20, 64), (20, 16))
"""After how many steps the factors are made anew, and patches of an image."""


def contenders() -> dict[str, Algorithm]:
    """FedAvg, removed means alone, and `whitened` in all settings."""
    return {
        "uniform": make("uniform"),
        "center-maps": parse("uniform + gradient:center('maps')"),
        **{f"every {every}, patches {p}": make("whitened", every=every, patches=p) for every, p in SETTINGS},
    }


def measure(name: str, repetitions: int) -> dict[str, Any]:
    """The ratio of each contender to FedAvg with quartiles, and the milliseconds of a step, on random images."""
    make_model, shape = MODELS[name]
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(BATCH * STEPS, *shape, generator=stream)
    places = torch.arange(BATCH * STEPS)
    task = TensorTask(make_model, images, places % 10, [places])
    local = Local(lr=0.01, weight_decay=1e-3, batch_size=BATCH)
    runs = {key: through_train(algorithm, task, local) for key, algorithm in contenders().items()}
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {key: [] for key in runs}
    for turn in range(repetitions):
        order = list(runs)
        for key in order[turn % len(order) :] + order[: turn % len(order)]:
            start = time.process_time()
            runs[key]()
            seconds[key].append(time.process_time() - start)
    ratios = {
        key: [a / b for a, b in zip(took, seconds["uniform"], strict=True)]
        for key, took in seconds.items()
        if key != "uniform"
    }
    return {
        "ratio": {key: round(statistics.median(x), 3) for key, x in ratios.items()},
        "quartiles": {key: [round(q, 3) for q in statistics.quantiles(x, n=4)[::2]] for key, x in ratios.items()},
        "ms": {key: round(statistics.median(x) / STEPS * 1e3, 3) for key, x in seconds.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The cost of a local step of whitened against FedAvg's.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repetitions", type=int, default=31, help="alternating repetitions")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {name: measure(name, options.repetitions) for name in MODELS}
    if options.json:
        about = {"batch": BATCH, "steps": STEPS, "repetitions": options.repetitions}
        print(json.dumps({**results, **about, "environment": environment("default")}, indent=2))
        return
    for name, result in results.items():
        print(f"{name}: a step of FedAvg {result['ms']['uniform']:.2f} ms")
        for key, ratio in result["ratio"].items():
            low, high = result["quartiles"][key]
            print(f"  {key:24} {ratio:6.3f}   half from {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
