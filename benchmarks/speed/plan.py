"""The cost model against five runs on which nothing was fitted: other models, methods, cohorts and engines.

The constants of this machine are measured first, or read from the user's cache with --stored. Perceptrons are predicted
from their number of parameters; for convolutions one visit is measured, as `undrift plan --config` does. Two ratios of
prediction to measurement: in processor time of the server and all workers, which other programs disturb little, and on
the clock, which is meaningful on a quiet machine only. Each run has a process of its own.

    python benchmarks/speed/plan.py --json > benchmarks/speed/results/plan.json
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from processes import run_part
from undrift import Local, Simulation, TensorTask, make
from undrift.engine.round.backend import InProcess
from undrift.engine.worker.job import Job
from undrift.models import CNN5, MLP, SmallCNN
from undrift.planning.calibrate import measure, measure_engines, time_rounds
from undrift.planning.from_run import job_size, measure_step
from undrift.planning.machine import Constants, load_constants, save_constants
from undrift.planning.round_cost import CostModel


@dataclass(frozen=True)
class Run:
    """A run to predict.

    Args:
        method: its name.
        model: builds the model.
        shape: of an example.
        clients: how many.
        cohort: how many take part in a round.
        examples: of each client.
        local: the settings of local training.
        engine: "local", "ray" or "flower".
        workers: how many.
        probe: measure a visit, as for a run's file.
    """

    method: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    clients: int
    cohort: int
    examples: int
    local: Local
    engine: str = "local"
    workers: int = 1
    probe: bool = False

    def job(self) -> Job:
        """What its workers share."""
        draw = torch.Generator().manual_seed(0)
        inputs = torch.randn(self.examples, *self.shape, generator=draw)
        targets = torch.randint(10, (self.examples,), generator=draw)
        task = TensorTask(self.model, inputs, targets, [torch.arange(self.examples)] * self.clients)
        return Job(make(self.method), task, self.local)


def wide() -> nn.Module:
    """A perceptron of 1.5 million parameters."""
    return MLP(784, 10, 900, 2)


def narrow() -> nn.Module:
    """A perceptron of 60,000 parameters."""
    return MLP(784, 10, 75)


def linear() -> nn.Module:
    """Logistic regression, 7,850 parameters."""
    return MLP(784, 10, depth=0)


RUNS = {
    "fedavg, logistic regression, 400 clients": Run(
        "fedavg", linear, (784,), 1000, 400, 60, Local(lr=0.1, batch_size=20)
    ),
    "scaffold, perceptron of 60,000, Ray": Run(
        "scaffold", narrow, (784,), 200, 100, 60, Local(lr=0.1, batch_size=20), "ray", 2
    ),
    "fedsam, perceptron of 1.5 million": Run("fedsam", wide, (784,), 20, 5, 100, Local(lr=0.1, batch_size=50)),
    "fedavg, CNN of 2.8 million, Ray": Run(
        "fedavg", CNN5, (3, 32, 32), 20, 6, 96, Local(lr=0.01, batch_size=48), "ray", 2, True
    ),
    "feddyn, small CNN, Flower": Run(
        "feddyn", SmallCNN, (1, 28, 28), 20, 8, 120, Local(lr=0.01, batch_size=40), "flower", 2, True
    ),
}


def check(name: str, rounds: int, constants: Constants) -> dict[str, Any]:
    """Predict a round of a run and measure some."""
    run = RUNS[name]
    job = run.job()
    torch.set_num_threads(1)
    size, method = job_size(job, cohort=run.cohort, workers=run.workers, engine=run.engine, checkpoint_every=0)
    if run.probe:
        size = measure_step(job, size, method, constants)
    predicted = CostModel(size, method, constants).predict()
    with TemporaryDirectory() as folder:
        if run.engine == "ray":
            from undrift.ray import Pool, RayBackend

            backend: Any = RayBackend(Pool(run.workers), root=folder)
        elif run.engine == "flower":
            from undrift.flower import FlowerBackend

            backend = FlowerBackend(run.workers, root=folder)
        else:
            backend = InProcess(root=folder)
        with Simulation(job.algorithm, job.task, job.local, cohort=run.cohort, backend=backend) as simulation:
            found = time_rounds(simulation, rounds)
    processor = sum(predicted.processor.values())
    measured = found.server + found.workers
    return {
        "run": name,
        "parameters": size.parameters,
        "cohort": size.cohort,
        "engine": size.engine,
        "visit_measured": run.probe,
        "processor": {
            "predicted": round(processor, 4),
            "measured": round(measured, 4),
            "ratio": round(processor / measured, 3),
        },
        "clock": {
            "predicted": round(predicted.seconds, 4),
            "measured": round(found.clock, 4),
            "ratio": round(predicted.seconds / found.clock, 3),
        },
    }


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--stored", action="store_true", help="take the constants in the user's cache")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are measured of each run")
    parser.add_argument("--part", help="predict and measure one run in this process")
    parser.add_argument("--constants", type=Path, help="with --part: the file of the constants")
    options = parser.parse_args()
    if options.part:
        constants = load_constants(options.constants)
        if constants is None:
            raise SystemExit("there are no constants: run undrift doctor --measure")
        print(json.dumps(check(options.part, options.rounds, constants)))
        return
    with TemporaryDirectory() as folder:
        constants = (load_constants() if options.stored else None) or measure_engines(measure())
        file = save_constants(constants, Path(folder) / "machine.json")
        words = ["--rounds", str(options.rounds), "--constants", str(file)]
        rows = [run_part(__file__, ["--part", name, *words]) for name in RUNS]
    load = os.getloadavg()[0]
    where = {"python": platform.python_version(), "machine": constants.machine, "load": round(load, 1)}
    if options.json:
        print(json.dumps({"runs": rows, "constants": constants.model_dump(), "environment": where}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    for row in rows:
        print(f"{row['run']:45} processor {row['processor']} clock {row['clock']}")


if __name__ == "__main__":
    main()
