"""Local training in bfloat16 against float32: the accuracy of four methods, and the time of a step.

Fashion-MNIST, 8,000 training examples over 20 clients (Dirichlet 0.5), 10 of them in each of 20 rounds, one epoch, the
small CNN, three seeds; the accuracy is the mean of the last five rounds, since that of one round varies by points.
Every run is one small file; those that are there are not run again. The summary has the differences.

    python benchmarks/studies/precision.py
"""

import argparse
import json
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shared import first_examples
from undrift import Local, Simulation, make
from undrift.data import Dataset, DataTask, load
from undrift.data.partitions.draw import partition
from undrift.runs.setup.choose_model import default_model, model_maker

LOCAL = Local(lr=0.05, epochs=1, batch_size=50, weight_decay=1e-3, clip=10.0)
METHODS = ("fedavg", "scaffold", "fedfft-d", "specgrad")
ROUNDS, CLIENTS, COHORT, EXAMPLES, TESTS, LAST, SEEDS = 20, 20, 10, 8000, 4000, 5, (0, 1, 2)
FOLDER = Path(__file__).parent / "results" / "precision"


def train(dataset: Dataset, method: str, precision: Any, seed: int) -> dict[str, Any]:
    """One run: the accuracy of its last models, and the time of a gradient with everything around it."""
    clients = partition("dirichlet:0.5", dataset.train.targets.numpy(), clients=CLIENTS, seed=seed).clients
    algorithm = make(method)
    task = DataTask(dataset, clients, model_maker(default_model(dataset, algorithm), dataset))
    simulation = Simulation(algorithm, task, replace(LOCAL, precision=precision), cohort=COHORT, seed=seed)
    seconds, gradients, accuracies = 0.0, 0, []
    state = simulation.start()
    for _ in range(ROUNDS):
        begun = time.process_time()  # of the processor: the machine may be busy
        state, record = simulation.round(state)
        seconds += time.process_time() - begun
        gradients += sum(visit.gradients for visit in record.visits)
        if state.round > ROUNDS - LAST:
            accuracies.append(task.test(simulation.module(state)).accuracy)
    return {
        "method": method,
        "precision": precision,
        "seed": seed,
        "accuracy": round(statistics.mean(accuracies), 4),
        "milliseconds_per_gradient": round(1000 * seconds / gradients, 3),
        "processor_seconds": round(seconds, 1),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean accuracy of every method in both precisions, their differences by seed, and the ratio of times."""
    found = {(row["method"], row["precision"], row["seed"]): row for row in rows}
    out = []
    for method in METHODS:
        pairs = [
            (found[method, "fp32", seed], found[method, "bf16", seed])
            for seed in SEEDS
            if (method, "fp32", seed) in found and (method, "bf16", seed) in found
        ]
        if pairs:
            points = [100 * (low["accuracy"] - full["accuracy"]) for full, low in pairs]
            times = [low["milliseconds_per_gradient"] / full["milliseconds_per_gradient"] for full, low in pairs]
            out.append(
                {
                    "method": method,
                    "seeds": len(pairs),
                    "fp32": round(statistics.mean(full["accuracy"] for full, _ in pairs), 4),
                    "bf16": round(statistics.mean(low["accuracy"] for _, low in pairs), 4),
                    "difference_in_points": round(statistics.mean(points), 2),
                    "differences": [round(x, 2) for x in points],
                    "step_time_ratio": round(statistics.median(times), 2),
                }
            )
    settings = {"local": repr(LOCAL), "rounds": ROUNDS, "clients": CLIENTS, "cohort": COHORT, "examples": EXAMPLES}
    machine = {"torch": torch.__version__, "machine": platform.machine(), "threads": torch.get_num_threads()}
    return {"settings": settings, "machine": machine, "methods": out}


def main() -> None:
    """Run what is missing, and write the summary after every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the results")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dataset = first_examples(load("fashion-mnist"), EXAMPLES, TESTS)
    cells = [(seed, method, precision) for seed in SEEDS for method in METHODS for precision in ("fp32", "bf16")]
    for seed, method, precision in cells:
        path = folder / f"{method}-{precision}-seed{seed}.json"
        if not path.exists():
            row = train(dataset, method, precision, seed)
            path.write_text(json.dumps(row, indent=2) + "\n")
            print(row, flush=True)
        rows = [json.loads(each.read_text()) for each in sorted(folder.glob("*-seed*.json"))]
        (folder / "summary.json").write_text(json.dumps(summary(rows), indent=2) + "\n")


if __name__ == "__main__":
    main()
