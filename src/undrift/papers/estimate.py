"""What the experiments cost: gradient evaluations, and hours on this machine from a measured step."""

import json
from dataclasses import dataclass
from math import ceil, isnan, nan
from pathlib import Path
from time import perf_counter

import torch
from torch.nn.functional import cross_entropy

from undrift.core.method.algorithm import cost
from undrift.data.arrays import cache
from undrift.data.files.known import find_source
from undrift.data.files.stand_in import stand_in
from undrift.data.partitions.draw import parse
from undrift.data.partitions.natural import Natural
from undrift.planning.calibrate import one_thread
from undrift.runs.settings.config import Config
from undrift.runs.settings.named_arguments import parts
from undrift.runs.setup.choose_model import default_model, model_maker
from undrift.runs.setup.prepare import CLIENTS, cohort_size
from undrift.studies.compare import Comparison
from undrift.util.storage.files import write

_BATCH, _REPEATS = 8, 3


@dataclass(frozen=True)
class CostEstimate:
    """What an experiment costs.

    Args:
        runs: how many runs it has.
        gradients: gradient evaluations of local steps, all runs together.
        hours: on one core of this machine; None if no step was measured.
        data: the data sets it needs.
    """

    runs: int
    gradients: float
    hours: float | None
    data: tuple[str, ...]


def estimate(comparison: Comparison, steps: "Steps | None" = None) -> CostEstimate:
    """The cost of a comparison: local training only, clients of equal size, without evaluation.

    Args:
        comparison: the comparison.
        steps: measured steps; None leaves out the hours.
    """
    configs = [trial.config for trial in comparison.trials()]
    counts = [gradients(config) for config in configs]
    hours = None
    if steps is not None:
        hours = sum(count * steps.seconds(config) for config, count in zip(configs, counts, strict=True)) / 3600
    return CostEstimate(
        len(configs), sum(counts), hours, tuple(dict.fromkeys(parts(config.data)[0] for config in configs))
    )


def gradients(config: Config) -> float:
    """How many gradients the local steps of a run evaluate.

    Example:
        >>> gradients(Config(data="cifar10", clients=100, cohort=10, rounds=2, local={"batch_size": 50, "epochs": 5}))
        1000.0
    """
    clients, examples = _population(config)
    examples *= (1 - config.holdout) / clients
    steps = config.local.step_count(ceil(examples), 0, 0, config.seed)
    per_step = cost(config.algorithm()).gradients_per_step
    cohort = config.probability * clients if config.probability else cohort_size(config.cohort, clients)
    return float(config.rounds * cohort * steps * per_step)


def _population(config: Config) -> tuple[int, float]:
    """How many clients a run has, and how many examples they have together."""
    source, scheme = find_source(parts(config.data)[0]), parse(config.partition)
    if not isinstance(scheme, Natural):
        return config.clients or CLIENTS, source.examples
    users = source.users - (scheme.test is not None)
    share = scheme.users * scheme.fraction
    examples = source.examples * users / source.users * share * scheme.samples
    return max(1, round(users * share)) * scheme.split, examples


class Steps:
    """Seconds of one gradient evaluation on this machine, measured once for each model and data set and stored."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or cache.root() / "steps.json"
        self.known: dict[str, float] = {}
        if self.file.is_file():
            stored = json.loads(self.file.read_text(encoding="utf-8"))
            self.known = {key: seconds for key, seconds in stored.items() if seconds is not None}

    def seconds(self, config: Config) -> float:
        """Seconds of a gradient on one batch of a run; nan if the model cannot be built here."""
        key = f"{config.model or 'default'} {config.data} torch-{torch.__version__}"
        if key not in self.known:
            self.known[key] = _time_example(config)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            measured = {key: x for key, x in self.known.items() if not isnan(x)}  # a missing library may come later
            write(self.file, json.dumps(measured, indent=1) + "\n")
        return self.known[key] * config.local.batch_size


def _time_example(config: Config) -> float:
    """Seconds per example of a forward and a backward pass, on one core; nan if a library is missing."""
    name, arguments = parts(config.data)
    data = stand_in(name, _BATCH, arguments.get("resize", 0))
    try:
        model = model_maker(config.model or default_model(data, config.algorithm()), data)()
    except ImportError:
        return nan
    inputs = data.train.inputs if data.kind == "text" else torch.zeros(_BATCH, *data.shape)
    times = []
    with one_thread():
        for _ in range(_REPEATS):
            begun = perf_counter()
            torch.autograd.grad(cross_entropy(model(inputs), data.train.targets), list(model.parameters()))
            times.append(perf_counter() - begun)
    return min(times) / _BATCH
