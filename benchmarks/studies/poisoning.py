"""Do rules bear with bad clients? Six attacks by two and by four of 20 clients against ten methods.

Fashion-MNIST, averaged to 14 x 14 pixels: 4,000 training examples over 20 clients, all in each of ten rounds of five
steps, a perceptron, the first 2,000 test examples. The attackers are omniscient where the attack needs it: ALIE and
inner product manipulation are computed from the honest uploads of the round. Each run is a line of
results/poisoning.jsonl; runs that are there are skipped. docs/evidence/findings/poisoning.md has the tables.

    python benchmarks/studies/poisoning.py --seeds 0 1 2
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from beside import gap_text
from shared import add_line, first_examples, measured, progress, read_arguments, read_lines, round_off
from undrift import Algorithm, Local, Simulation, make
from undrift.core.records.types import Broadcast, Upload
from undrift.data import Dataset, DataTask, load
from undrift.data.arrays.dataset import Split
from undrift.data.partitions.draw import partition
from undrift.engine.round.backend import InProcess
from undrift.engine.worker.job import VersionGroup
from undrift.engine.worker.partial_sum import Partial, TrainedClient
from undrift.models import MLP
from undrift.studies.statistics import late_mean, paired_difference

LINES = Path(__file__).parent / "results" / "poisoning.jsonl"
SEEDS = (0, 1, 2)
CLIENTS, ROUNDS, TRAIN, TEST = 20, 10, 4000, 2000
LOCAL = Local(lr=0.2, steps=5, batch_size=40)
PARTITIONS = {"iid": "IID", "dirichlet:0.3": "Dirichlet 0.3"}
ATTACKS = {
    "sign-flip": "sign flip",
    "scale": "scale",
    "label-flip": "label flip",
    "alie": "ALIE",
    "inner-product": "inner product",
    "backdoor": "backdoor",
}
NONE = ("none", 0)
METHODS = {
    "FedAvg": "uniform",
    "FedAvg, bound": "uniform",
    "norm clip": "norm-clip",
    "median": "median",
    "trimmed mean": "trimmed-mean(f=0.2)",
    "Krum": "krum(f=0.2)",
    "geometric median": "geometric-median",
    "FedFFT-D": "fedfft-d",
    "SpecGradFilter": "specgrad",
    "whitened": "whitened",
}
"""The row -> the method. All weigh clients alike; the two rules with an f get the largest share of attackers."""

BASE, BOUND = "FedAvg", "FedAvg, bound"
SCALE, DEVIATIONS, PAST, PATCH, TARGET = 10.0, 1.5, 1.1, 4, 0


def build() -> nn.Module:
    """Pooling, then a perceptron with 64 hidden units."""
    return nn.Sequential(nn.AvgPool2d(2), MLP(inputs=196, outputs=10, width=64))


def stamp(images: Tensor) -> Tensor:
    """Images with the trigger, a white patch in a corner.

    Args:
        images: bytes (examples, channels, height, width).
    """
    out = images.clone()
    out[..., -PATCH:, -PATCH:] = 255
    return out


def poisoned(dataset: Dataset, examples: Sequence[Any], attack: str) -> Dataset:
    """The data with those of the attackers changed: labels mirrored, or every second example with the trigger.

    Args:
        dataset: the data.
        examples: the indices of each attacker's examples.
        attack: of `ATTACKS`; one that changes uploads changes no data.
    """
    inputs, targets = dataset.train.inputs.clone(), dataset.train.targets.clone()
    for own in map(torch.as_tensor, examples):
        if attack == "label-flip":
            targets[own] = 9 - targets[own]
        if attack == "backdoor":
            inputs[own[::2]], targets[own[::2]] = stamp(inputs[own[::2]]), TARGET
    return replace(dataset, train=Split(inputs, targets))


def forged(attack: str, own: Tensor, honest: Tensor, attackers: int) -> Tensor:
    """What an attacker uploads.

    Args:
        attack: of `ATTACKS`.
        own: the displacement that its training gave.
        honest: those of the honest clients, in rows.
        attackers: how many attack.
    """
    mean = honest.mean(dim=0)
    if attack == "sign-flip":
        return -own
    if attack == "scale":
        return SCALE * own
    if attack == "alie":
        return mean - DEVIATIONS * honest.std(dim=0)
    if attack == "inner-product":
        return -PAST * len(honest) / attackers * mean
    return own


@dataclass
class Attack:
    """Who attacks, and how."""

    name: str
    attackers: int


class Attacked(InProcess):
    """Trains all clients of a round, forges the attackers' uploads and lets all of them through the usual gate.

    Args:
        attack: who attacks, and how.
        bounded: whether the adaptive bound of a deployment holds.
    """

    def __init__(self, attack: Attack, bounded: bool) -> None:
        # imported here so that the tables are made without Flower
        from undrift.engine.flower.server.adaptive_bound import AdaptiveBound, RunningBound

        super().__init__()
        self.attack, self.bounds = attack, RunningBound(AdaptiveBound() if bounded else None)
        self.rejected = {True: 0, False: 0}

    def collect(self, groups: Sequence[VersionGroup], accepted: Mapping[int, int], cohort: int) -> list[Partial]:
        """Train, forge, admit."""
        ((sent, clients, _),) = groups
        trained = self._train(sent, clients, accepted, cohort)
        limit = self.bounds.value(sent.params)
        gate = replace(self.worker.job, bound=limit).gate(sent, clients, cohort)
        partial = Partial(gate.total())
        for one in trained:
            partial.admit(one, gate, self.worker.place)
        for rejection in gate.rejections:
            self.rejected[rejection.client < self.attack.attackers] += 1
        self.bounds.take([visit.norm for visit in partial.visits])
        partial.rejections = gate.rejections
        return [partial]

    def _train(
        self, sent: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], cohort: int
    ) -> list[TrainedClient]:
        """All clients, the attackers' displacements forged."""
        gate = self.worker.job.gate(sent, clients, cohort)
        trained = [
            replace(one, upload=replace(one.upload, delta=one.upload.delta.clone()))
            for one in self.worker._train_all(sent, clients, accepted, gate)
        ]
        bad = self.attack.attackers
        honest = torch.stack([one.upload.delta for one in trained if one.upload.client >= bad])
        return [
            replace(one, upload=self._forge(one.upload, honest)) if one.upload.client < bad else one for one in trained
        ]

    def _forge(self, upload: Upload, honest: Tensor) -> Upload:
        return replace(upload, delta=forged(self.attack.name, upload.delta, honest, self.attack.attackers))


def grouped(local: Local, algorithm: Algorithm) -> Local:
    """The settings with which clients are trained together, where the method's steps can be.

    Args:
        local: the settings.
        algorithm: the method.
    """
    return local if algorithm.fills("spectral") else replace(local, together=CLIENTS)


def run(dataset: Dataset, kind: str, attack: Attack, label: str, seed: int) -> dict[str, Any]:
    """One run: accuracy, and how often the trigger leads to its class, after each of the last rounds.

    Args:
        dataset: the data.
        kind: of `PARTITIONS`.
        attack: who attacks, and how.
        label: of `METHODS`.
        seed: of the split and of the run.
    """
    begun, algorithm = time.process_time(), make(METHODS[label])
    clients = partition(kind, dataset.train.targets.numpy(), clients=CLIENTS, seed=seed).clients
    task = DataTask(poisoned(dataset, clients[: attack.attackers], attack.name), clients, build, seed=seed)
    backend = Attacked(attack, label == BOUND)
    simulation = Simulation(algorithm, task, grouped(LOCAL, algorithm), seed=seed, backend=backend)
    others = dataset.test.targets != TARGET
    marked = task.prepare(stamp(dataset.test.inputs[others]))
    state, curve, hits = simulation.start(), [], []
    for round in range(1, ROUNDS + 1):
        simulation.bound = backend.bounds.value(state.params)
        state, _ = simulation.round(state)
        if round > ROUNDS - 3:
            module = simulation.module(state)
            curve.append((round, round_off(task.test(module).accuracy)))
            with torch.no_grad():
                hits.append(round_off(float((module(marked).argmax(dim=1) == TARGET).double().mean())))
    about = {"partition": kind, "attack": attack.name, "attackers": attack.attackers, "label": label, "seed": seed}
    rejected = [backend.rejected[True], backend.rejected[False]]
    seconds = round_off(time.process_time() - begun, 1)
    return {**about, "curve": curve, "backdoor": hits, "rejected": rejected, "seconds": seconds}


def cases(seeds: Sequence[int]) -> Iterator[tuple[str, Attack, str, int]]:
    """All runs, so that the first of them make whole tables of fewer seeds.

    Args:
        seeds: the seeds.
    """
    attacks = [NONE, *((name, count) for count in (4, 2) for name in ATTACKS)]
    for seed, kind, (name, count) in product(seeds, PARTITIONS, attacks):
        for label in METHODS:
            yield kind, Attack(name, count), label, seed


Key = tuple[str, str, int, str]


def found(kind: str = "curve") -> dict[Key, dict[int, float]]:
    """Partition, attack, attackers and row -> seed -> late accuracy, or success of the trigger, in points.

    Args:
        kind: "curve" or "backdoor".
    """
    out: dict[Key, dict[int, float]] = {}
    for line in read_lines(LINES):
        value = late_mean([x for _, x in line["curve"]]) if kind == "curve" else fmean(line["backdoor"])
        key = (line["partition"], line["attack"], line["attackers"], line["label"])
        out.setdefault(key, {})[line["seed"]] = 100 * value
    return out


def tables() -> str:
    """A table for each partition and number of attackers, then one of the trigger's success, in Markdown."""
    parts = [progress(read_lines(LINES), len(list(cases(SEEDS))))]
    accuracy, backdoor = found(), found("backdoor")
    for (kind, title), count in product(PARTITIONS.items(), (2, 4)):
        attacked = {ATTACKS[name]: (kind, name, count) for name in ATTACKS}
        if any((*place, BASE) in accuracy for place in attacked.values()):
            rows = _rows(accuracy, [(kind, *NONE), *attacked.values()])
            heads = ["late accuracy", "no attack", *attacked]
            parts.append(measured(f"{title}, {count} attackers of {CLIENTS}:", heads, rows))
    success = {f"{PARTITIONS[kind]}, {n} attackers": (kind, "backdoor", n) for kind, n in product(PARTITIONS, (2, 4))}
    rows = _rows(backdoor, success.values())
    parts.append(measured("Success of the backdoor:", ["success of the trigger", *success], rows))
    return "\n\n".join(filter(None, parts))


def _rows(values: Mapping[Key, dict[int, float]], places: Iterable[tuple[str, str, int]]) -> Iterator[list[str]]:
    """FedAvg's means, what the attack does to it, and the other rows minus FedAvg under the same attack."""
    places = list(places)
    base = [values.get((*place, BASE), {}) for place in places]
    yield [BASE, *(f"{fmean(cell.values()):.1f}" if cell else "" for cell in base)]
    calm = [values.get((place[0], *NONE, BASE), {}) for place in places]
    yield ["FedAvg minus no attack", *("" if a is b else _gap(a, b) for a, b in zip(base, calm, strict=True))]
    for label in METHODS:
        if label != BASE:
            own = [values.get((*place, label), {}) for place in places]
            yield [f"{label} minus FedAvg", *(_gap(a, b) for a, b in zip(own, base, strict=True))]


def _gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    return gap_text(paired_difference(ours, theirs))


def main() -> None:
    """Run what is missing."""
    arguments = read_arguments(__doc__, tables, {"--seeds": {"type": int, "nargs": "+", "default": SEEDS}})
    there = {
        tuple(line[x] for x in ("partition", "attack", "attackers", "label", "seed")) for line in read_lines(LINES)
    }
    dataset = first_examples(load("fashion-mnist"), TRAIN, TEST)
    for kind, attack, label, seed in cases(arguments.seeds):
        if (kind, attack.name, attack.attackers, label, seed) not in there:
            add_line(LINES, run(dataset, kind, attack, label, seed))


if __name__ == "__main__":
    main()
