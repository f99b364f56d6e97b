"""The cost of a local step: the loop against bare PyTorch, and one method against another.

All contenders run in one process, one after the other in every repetition, and a ratio is the median over the
repetitions: a busy machine slows both sides of it. `least` compares the shortest repetitions of both sides, those that
were disturbed least. A value is the processor time of a step of the first over the second. With `--json` everything is
measured a second time with malloc's memory kept, as a worker keeps it, in a process of its own: `kept`.

    python benchmarks/speed/step.py --json > benchmarks/speed/results/step.json
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from processes import run_part
from undrift.algorithms import fedavg, fedfft, fedfft_d, fedsam, specgrad
from undrift.core.client.visit import train
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import bind
from undrift.core.model.random import generator
from undrift.core.records.types import Local
from undrift.core.server import step as server
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.worker.device import keep_memory
from undrift.models import CNN5, resnet, resnet18

MODELS: dict[str, tuple[Callable[[], nn.Module], int, int, int]] = {
    "cnn5": (CNN5, 48, 5, 21),
    "resnet20": (resnet, 50, 3, 15),
    "resnet18": (resnet18, 50, 1, 7),
}
"""How to make each model, its batch size, the local steps of a repetition and the repetitions."""
METHODS: dict[str, Algorithm] = {
    "fedavg": fedavg(),
    "fedsam": fedsam(),
    "specgrad": specgrad(),
    "fedfft": fedfft(),
    "fedfft_d": fedfft_d(),
}
RATIOS = {
    "loop_over_bare": ("fedavg", "bare"),
    "fedsam_over_fedavg": ("fedsam", "fedavg"),
    "specgrad_over_fedavg": ("specgrad", "fedavg"),
    "fedfft_over_fedsam": ("fedfft", "fedsam"),
    "fedfft_d_over_fedavg": ("fedfft_d", "fedavg"),
}


def bare(task: TensorTask, local: Local) -> Callable[[], None]:
    """An epoch of SGD, as one would write it without a library."""
    model = task.model().train()

    def epoch() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=local.lr, weight_decay=local.weight_decay)
        for batch in task.batches(0, local.batch_size, generator(0, 0, 0, "batches")):
            optimizer.zero_grad()
            task.loss(model, batch).backward()
            optimizer.step()

    return epoch


def through_train(algorithm: Algorithm, task: TensorTask, local: Local) -> Callable[[], None]:
    """The same epoch through the library's client loop; the server is not part of it."""
    model = bind(task.model().train())
    broadcast = server.send(algorithm, server.open_run(algorithm, model), Setting(1, local, model.layout))
    random = partial(generator, 0, 0, 0)
    loss = partial(task.loss, model.module)
    out = torch.empty_like(model.w)  # as a worker gives it

    def epoch() -> None:
        batches = task.batches(0, local.batch_size, random("batches"))
        examples = task.examples(0)
        steps = -(-examples // local.batch_size)
        train(
            algorithm,
            model,
            loss,
            batches,
            broadcast,
            None,
            local,
            client=0,
            examples=examples,
            steps=steps,
            random=random,
            out=out,
        )

    return epoch


def contenders(name: str) -> dict[str, Callable[[], None]]:
    """Everything that is timed on one model, on random images of CIFAR's shape."""
    make, batch, steps, _ = MODELS[name]
    images = torch.randn(steps * batch, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(steps * batch) % 10
    task = TensorTask(make, images, labels, [torch.arange(steps * batch)])
    local = Local(lr=0.01, weight_decay=1e-3, batch_size=batch)
    return {
        "bare": bare(task, local),
        **{method: through_train(algorithm, task, local) for method, algorithm in METHODS.items()},
    }


def measure(name: str) -> dict[str, Any]:
    """The ratios of one model with their quartiles, and the milliseconds of a step of each contender."""
    *_, steps, repetitions = MODELS[name]
    runs = contenders(name)
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {contender: [] for contender in runs}
    for _ in range(repetitions):
        for contender, run in runs.items():
            start = time.process_time()
            run()
            seconds[contender].append(time.process_time() - start)
    pairs = {
        ratio: [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
        for ratio, (above, below) in RATIOS.items()
    }
    return {
        **{ratio: round(statistics.median(values), 3) for ratio, values in pairs.items()},
        "quartiles": {
            ratio: [round(q, 3) for q in statistics.quantiles(values, n=4)[::2]] for ratio, values in pairs.items()
        },
        "least": {
            ratio: round(min(seconds[above]) / min(seconds[below]), 3) for ratio, (above, below) in RATIOS.items()
        },
        "steps": steps,
        "repetitions": repetitions,
        "ms": {contender: round(statistics.median(s) / steps * 1e3, 2) for contender, s in seconds.items()},
    }


def environment(malloc: str) -> dict[str, Any]:
    """The machine and the versions."""
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    cpu = models[0].split(":")[1].strip() if models else platform.processor()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "malloc": malloc,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The cost of a local step.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--model", choices=MODELS, help="measure one model only")
    parser.add_argument("--keep-memory", action="store_true", help="measure without malloc's page faults (glibc)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.keep_memory:
        keep_memory()
    results = {name: measure(name) for name in MODELS if options.model in (None, name)}
    where = environment("keeps memory" if options.keep_memory else "default")
    if options.json and options.keep_memory:
        print(json.dumps(results))
        return
    if options.json:
        model = ["--model", options.model] if options.model else []
        kept = run_part(__file__, ["--json", "--keep-memory", *model])
        print(json.dumps({**results, "kept": kept, "environment": where}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    for name, result in results.items():
        print(f"{name}: a step of " + ", ".join(f"{contender} {ms:.1f} ms" for contender, ms in result["ms"].items()))
        for ratio in RATIOS:
            low, high = result["quartiles"][ratio]
            least = result["least"][ratio]
            print(f"  {ratio:22} {result[ratio]:6.3f}   half from {low:.3f} to {high:.3f}   least {least:.3f}")


if __name__ == "__main__":
    main()
