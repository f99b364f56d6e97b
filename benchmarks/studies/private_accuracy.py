"""Do filters and privacy fight? Accuracy against epsilon, for clients, of six methods with a private sum.

Fashion-MNIST, averaged to 14 x 14 pixels: 30,000 training examples over 1,000 clients (30 each, label shares by
Dirichlet 0.3), each in a round with probability 0.1, 20 rounds of two steps, a perceptron, the first 2,000 test
examples. Epsilon is that of a client at delta 1,000^-1.1. Correlated noise: clients take turns of ten rounds, so each
is in two, and sampling amplifies nothing. One clip for all rows. Each run is a line of results/private-accuracy.jsonl;
runs that are there are skipped. docs/evidence/findings/private-accuracy.md has the table.

    python benchmarks/studies/private_accuracy.py --seeds 0 1 2
"""

import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from beside import gap_text
from poisoning import SEEDS, build, grouped
from shared import add_line, first_examples, measured, progress, read_arguments, read_lines, round_off
from undrift import Local, Simulation, make
from undrift.blocks.release import PrivateSum
from undrift.data import Dataset, DataTask, load
from undrift.data.partitions.draw import partition
from undrift.privacy.accounting import calibrate_noise, gaussian_epsilon, sampled_epsilon
from undrift.studies.statistics import late_mean, paired_difference

LINES = Path(__file__).parent / "results" / "private-accuracy.jsonl"
CLIENTS, COHORT, ROUNDS, TRAIN, TEST = 1000, 100, 20, 30_000, 2000
LOCAL = Local(lr=0.2, steps=2, batch_size=15)
DELTA, TURNS = CLIENTS**-1.1, CLIENTS // COHORT
EPSILONS = (None, 8.0, 2.0)
CLIP = 0.3
METHODS = {
    "FedAvg": "uniform",
    "FedSAM": "fedsam",
    "SpecGradFilter": "specgrad",
    "FedFFT-D": "fedfft-d",
    "whitened": "whitened",
    "SCAFFOLD": "scaffold",
}
BASE, CORRELATED = "FedAvg", ("FedAvg", "SpecGradFilter")
INDEPENDENT, TURNED = "independent", "correlated"


def noise(epsilon: float, kind: str) -> float:
    """The noise multiplier for a budget.

    Args:
        epsilon: the budget.
        kind: "independent" or "correlated".
    """
    if kind == TURNED:
        return calibrate_noise(epsilon, lambda z: gaussian_epsilon(z, DELTA, -(-ROUNDS // TURNS)))
    return calibrate_noise(epsilon, lambda z: sampled_epsilon(z, COHORT / CLIENTS, DELTA, ROUNDS))


def run(dataset: Dataset, label: str, epsilon: float | None, kind: str, seed: int) -> dict[str, Any]:
    """One run.

    Args:
        dataset: the data.
        label: of `METHODS`.
        epsilon: the budget; None neither clips nor adds noise.
        kind: of the noise.
        seed: of the split and of the run.
    """
    begun = time.process_time()
    algorithm = make(METHODS[label])
    if epsilon is not None:
        release = PrivateSum(CLIP, noise(epsilon, kind), TURNS if kind == TURNED else 1)
        algorithm = replace(algorithm, release=release)
    clients = partition("dirichlet-client:0.3", dataset.train.targets.numpy(), clients=CLIENTS, seed=seed).clients
    task = DataTask(dataset, clients, build, seed=seed)
    drawn: dict[str, Any] = {"cohort": COHORT} if kind == TURNED else {"probability": COHORT / CLIENTS}
    simulation = Simulation(algorithm, task, grouped(LOCAL, algorithm), seed=seed, **drawn)
    state, curve = simulation.start(), []
    for round in range(1, ROUNDS + 1):
        state, _ = simulation.round(state)
        if round > ROUNDS - 3:
            curve.append((round, round_off(task.test(simulation.module(state)).accuracy)))
    about = {"label": label, "epsilon": epsilon, "noise": kind, "seed": seed, "curve": curve}
    stated = simulation.privacy(ROUNDS)
    seconds = round_off(time.process_time() - begun, 1)
    return {**about, "statement": None if stated is None else stated.row(), "seconds": seconds}


Case = tuple[str, float | None, str]


def rows() -> list[Case]:
    """Every row at every epsilon, with the kind of its noise; correlated noise at an epsilon only."""
    plain = [(label, epsilon, INDEPENDENT) for epsilon in EPSILONS for label in METHODS]
    return plain + [(label, epsilon, TURNED) for epsilon in EPSILONS if epsilon is not None for label in CORRELATED]


def late(line: dict[str, Any]) -> float:
    """The late accuracy of a run, in percent.

    Args:
        line: of the results.
    """
    return 100 * late_mean([x for _, x in line["curve"]])


def values() -> dict[Case, dict[int, float]]:
    """Row, epsilon and noise -> seed -> late accuracy in percent."""
    out: dict[Case, dict[int, float]] = {}
    for line in read_lines(LINES):
        out.setdefault((line["label"], line["epsilon"], line["noise"]), {})[line["seed"]] = late(line)
    return out


def table() -> str:
    """FedAvg; each row minus FedAvg at the same epsilon; each row minus itself without privacy, in Markdown."""
    known = values()
    base = [known.get((BASE, x, INDEPENDENT), {}) for x in EPSILONS]
    lines = [[BASE, *(f"{fmean(x.values()):.1f}" if x else "" for x in base)]]
    for label, kind in dict.fromkeys((label, kind) for label, _, kind in rows()):
        if (label, kind) != (BASE, INDEPENDENT):
            gaps = [_gap(known.get((label, x, kind)), other) for x, other in zip(EPSILONS, base, strict=True)]
            lines.append([f"{_name(label, kind)} minus FedAvg", *gaps])
    for label, kind in dict.fromkeys((label, kind) for label, _, kind in rows()):
        none = known.get((label, None, INDEPENDENT))
        gaps = [_gap(known.get((label, x, kind)), none) for x in EPSILONS if x is not None]
        lines.append([f"{_name(label, kind)} minus itself without privacy", "", *gaps])
    heads = ["none" if x is None else f"{x:g}" for x in EPSILONS]
    state = progress(read_lines(LINES), len(SEEDS) * len(rows()))
    return measured(state, ["late accuracy at epsilon", *heads], lines) or state


def _name(label: str, kind: str) -> str:
    return label if kind == INDEPENDENT else f"{label}, correlated noise,"


def _gap(ours: dict[int, float] | None, theirs: dict[int, float] | None) -> str:
    return gap_text(paired_difference(ours or {}, theirs or {}))


def main() -> None:
    """Run what is missing."""
    arguments = read_arguments(__doc__, table, {"--seeds": {"type": int, "nargs": "+", "default": SEEDS}})
    done = {tuple(x[key] for key in ("label", "epsilon", "noise", "seed")) for x in read_lines(LINES)}
    dataset = first_examples(load("fashion-mnist"), TRAIN, TEST)
    for seed, (label, epsilon, kind) in product(arguments.seeds, rows()):
        if (label, epsilon, kind, seed) not in done:
            add_line(LINES, run(dataset, label, epsilon, kind, seed))


if __name__ == "__main__":
    main()
