"""The cost of the data: loading CIFAR-10 and preparing its batches, relative to training ResNet-20 on them.

One process, one thread. Data and training are timed alternately, batch by batch, so that a busy machine slows both
sides of a ratio; the batches are those of an epoch, 50 images each, with flips and crops. An epoch's training is
the median step times its 1,000 batches.

    UNDRIFT_DATA=... python benchmarks/speed/data.py --json > benchmarks/speed/results/data.json
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from step import environment
from undrift.core.model.random import generator
from undrift.data import Dataset, DataTask, load
from undrift.models import resnet

BATCH = 50


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a call."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def loads() -> tuple[float, float, Dataset]:
    """Seconds to decode the files into an empty cache, and to load them from it."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNDRIFT_CACHE"] = folder
        first, _ = timed(lambda: load("cifar10"))
        again, dataset = timed(lambda: load("cifar10"))
        dataset.train.inputs.sum()  # touch every page while the files are there
        return first, again, dataset


def measure(batches: int) -> dict[str, Any]:
    """The cost of the data relative to an epoch's training, and its parts."""
    first, again, dataset = loads()
    count = len(dataset.train)
    task = DataTask(dataset, [torch.arange(count)], resnet, augment="flip+crop")
    model = task.model().train()

    def train(batch: tuple[Tensor, Tensor]) -> None:
        model.zero_grad()
        task.loss(model, batch).backward()

    seconds: dict[str, list[float]] = {"data": [], "channels_last": [], "contiguous": []}
    served = task.batches(0, BATCH, generator(0, 0, 0, "batches"))
    for number in range(batches + 2):
        data, batch = timed(lambda: next(served))
        times = {"data": data, "channels_last": timed(lambda: train(batch))[0]}  # noqa: B023
        times["contiguous"] = timed(lambda: train((batch[0].contiguous(), batch[1])))[0]  # noqa: B023
        for name, value in times.items():
            seconds[name] += [value] * (number >= 2)  # the first two warm up
    median = {name: statistics.median(values) for name, values in seconds.items()}
    steps = -(-count // BATCH)
    epoch = steps * median["channels_last"]
    return {
        "data_over_training": round((again + steps * median["data"]) / epoch, 4),
        "data_over_training_first_time": round((first + steps * median["data"]) / epoch, 4),
        "channels_last_over_contiguous": round(median["channels_last"] / median["contiguous"], 3),
        "load_first_s": round(first, 2),
        "load_again_s": round(again, 4),
        "ms": {name: round(1e3 * value, 2) for name, value in median.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The cost of the data.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--batches", type=int, default=200, help="batches that are timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = measure(options.batches)
    where = environment(options.batches, 1, "default")
    if options.json:
        print(json.dumps({**results, "environment": where}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    for name, value in results.items():
        print(f"{name:30} {value}")


if __name__ == "__main__":
    main()
