"""Do filters and privacy fight? Accuracy against epsilon, for clients, of six methods with a private sum.

Fashion-MNIST, averaged to 14 x 14 pixels: 30,000 training examples over 1,000 clients (Dirichlet 0.3), each in a round
with probability 0.1, 30 rounds of five steps, a perceptron, the first 2,000 test examples. Epsilon is that of a client
at delta 1,000^-1.1. Correlated noise: clients take turns of ten rounds, so each is in three, and sampling amplifies
nothing. The clip of a row is chosen from `CLIPS` at epsilon 8 with a seed of its own. Each run is a line of
results/private-accuracy.jsonl; runs that are there are skipped. docs/evidence/findings/private-accuracy.md has the
table.

    python benchmarks/studies/private_accuracy.py --seeds 0 1 2
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from beside import gap_text
from poisoning import build, round_off
from shared import first_examples, read_lines
from undrift import Local, Simulation, make
from undrift.blocks.release import PrivateSum
from undrift.data import Dataset, DataTask, load
from undrift.data.partitions.draw import partition
from undrift.privacy.accounting import calibrate_noise, gaussian_epsilon, sampled_epsilon
from undrift.studies.statistics import late_mean, paired_difference
from undrift.util.display.tables import markdown

LINES = Path(__file__).parent / "results" / "private-accuracy.jsonl"
CLIENTS, COHORT, ROUNDS, TRAIN, TEST = 1000, 100, 30, 30_000, 2000
LOCAL = Local(lr=0.1, steps=5, batch_size=10)
DELTA, TURNS = CLIENTS**-1.1, CLIENTS // COHORT
EPSILONS = (None, 8.0, 2.0)
CLIPS, TUNING = (0.1, 0.3, 1.0), 100
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


def run(dataset: Dataset, label: str, epsilon: float | None, kind: str, clip: float, seed: int) -> dict[str, Any]:
    """One run.

    Args:
        dataset: the data.
        label: of `METHODS`.
        epsilon: the budget; None neither clips nor adds noise.
        kind: of the noise.
        clip: the largest norm of a displacement.
        seed: of the split and of the run.
    """
    begun = time.process_time()
    algorithm = make(METHODS[label])
    if epsilon is not None:
        release = PrivateSum(clip, noise(epsilon, kind), TURNS if kind == TURNED else 1)
        algorithm = replace(algorithm, release=release)
    clients = partition("dirichlet-client:0.3", dataset.train.targets.numpy(), clients=CLIENTS, seed=seed).clients
    task = DataTask(dataset, clients, build, seed=seed)
    drawn: dict[str, Any] = {"cohort": COHORT} if kind == TURNED else {"probability": COHORT / CLIENTS}
    simulation = Simulation(algorithm, task, LOCAL, seed=seed, **drawn)
    state, curve = simulation.start(), []
    for round in range(1, ROUNDS + 1):
        state, _ = simulation.round(state)
        if round > ROUNDS - 3:
            curve.append((round, round_off(task.test(simulation.module(state)).accuracy)))
    about = {"label": label, "epsilon": epsilon, "noise": kind, "clip": clip, "seed": seed, "curve": curve}
    stated = simulation.privacy(ROUNDS)
    seconds = round_off(time.process_time() - begun, 1)
    return {**about, "statement": None if stated is None else stated.row(), "seconds": seconds}


Case = tuple[str, float | None, str]


def rows() -> list[Case]:
    """Every row at every epsilon, with the kind of its noise."""
    both = [(label, kind) for kind in (INDEPENDENT, TURNED) for label in METHODS if kind != TURNED or label in CORRELATED]
    return [(label, epsilon, kind) for epsilon, (label, kind) in product(EPSILONS, both)]


def best_clip(label: str, kind: str) -> float:
    """The clip of a row, by the runs with the seed of tuning; the middle one if they are not all there.

    Args:
        label: of `METHODS`.
        kind: of the noise.
    """
    trials = found(TUNING, label, kind)
    return max(trials, key=trials.__getitem__) if len(trials) == len(CLIPS) else CLIPS[1]


def found(seed: int, label: str, kind: str) -> dict[float, float]:
    """Clip -> late accuracy at epsilon 8.

    Args:
        seed: the seed.
        label: of `METHODS`.
        kind: of the noise.
    """
    lines = [x for x in read_lines(LINES) if (x["seed"], x["label"], x["noise"], x["epsilon"]) == (seed, label, kind, 8.0)]
    return {line["clip"]: late(line) for line in lines}


def late(line: dict[str, Any]) -> float:
    """The late accuracy of a run, in percent.

    Args:
        line: of the results.
    """
    return 100 * late_mean([x for _, x in line["curve"]])


def cases(seeds: Sequence[int]) -> Iterator[tuple[Case, float, int]]:
    """All runs: those that choose the clips, then seed by seed.

    Args:
        seeds: the seeds.
    """
    for label, epsilon, kind in rows():
        if epsilon == 8.0:
            yield from (((label, epsilon, kind), clip, TUNING) for clip in CLIPS)
    for seed in seeds:
        for label, epsilon, kind in rows():
            yield (label, epsilon, kind), best_clip(label, kind), seed


def values() -> dict[Case, dict[int, float]]:
    """Row, epsilon and noise -> seed -> late accuracy in percent; without the runs that chose clips."""
    out: dict[Case, dict[int, float]] = {}
    for line in read_lines(LINES):
        if line["seed"] != TUNING:
            out.setdefault((line["label"], line["epsilon"], line["noise"]), {})[line["seed"]] = late(line)
    return out


def table() -> str:
    """FedAvg, and each row minus FedAvg with independent noise at the same epsilon and with none, in Markdown."""
    known, lines = values(), []
    heads = [("none" if x is None else f"{x:g}") for x in EPSILONS]
    base = [known.get((BASE, x, INDEPENDENT), {}) for x in EPSILONS]
    lines.append([BASE, *(f"{fmean(x.values()):.1f}" if x else "" for x in base), ""])
    for label, kind in dict.fromkeys((label, kind) for label, _, kind in rows()):
        if (label, kind) != (BASE, INDEPENDENT):
            own = [known.get((label, x, kind), {}) for x in EPSILONS]
            gaps = [gap_text(paired_difference(a, b)) for a, b in zip(own, base, strict=True)]
            name = label if kind == INDEPENDENT else f"{label}, correlated noise"
            lines.append([f"{name} minus FedAvg", *gaps, f"{best_clip(label, kind):g}"])
    lines[0][-1] = f"{best_clip(BASE, INDEPENDENT):g}"
    costs = [""]
    for label, kind in dict.fromkeys((label, kind) for label, _, kind in rows()):
        own = [known.get((label, x, kind), {}) for x in EPSILONS]
        name = label if kind == INDEPENDENT else f"{label}, correlated noise"
        lines.append([f"{name} minus itself at epsilon none", "", *(gap_text(paired_difference(x, own[0])) for x in own[1:]), ""])
    del costs
    return markdown(["late accuracy at epsilon", *heads, "clip"], lines, left=1)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tables", action="store_true", help="print the table of what is there")
    arguments = parser.parse_args()
    if arguments.tables:
        print(table())
        return
    torch.set_num_threads(1)
    dataset = first_examples(load("fashion-mnist"), TRAIN, TEST)
    for (label, epsilon, kind), clip, seed in cases(arguments.seeds):
        done = {tuple(x[key] for key in ("label", "epsilon", "noise", "seed")) for x in read_lines(LINES)}
        tried = seed == TUNING and clip in found(seed, label, kind)
        if not tried and (seed == TUNING or (label, epsilon, kind, seed) not in done):
            with LINES.open("a") as file:
                file.write(json.dumps(run(dataset, label, epsilon, kind, clip, seed)) + "\n")


if __name__ == "__main__":
    main()
