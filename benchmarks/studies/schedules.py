"""Which schedule reaches an accuracy first? Nine methods on one virtual clock, each with its own learning rate.

100 clients with label shares by Dirichlet 0.1, ten in flight, images averaged to half their side; a perceptron for
Fashion-MNIST, the package's small CNN for CIFAR-10. A task takes a client as long as its speed says; speeds are
log-normal. In one variant those clients are slow that have the most examples of three classes, in the other the same
speeds are dealt at random. All runs end after 1,000 virtual seconds, in which about 22 synchronous rounds fit. Rates
are tuned on examples that no client has, with seeds that judge nothing. Each run, tuning or not, is a line of
results/schedules.jsonl; runs that are there are skipped.
docs/evidence/findings/schedules.md has the tables.

    python benchmarks/studies/schedules.py fashion-mnist
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import exp
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from beside import gap_text
from shared import add_line, first_examples, measured, progress, read_arguments, read_lines, round_off
from study_curves import curves
from undrift import Local, Simulation, make
from undrift.core.method.algorithm import vectors_sent
from undrift.core.model.random import derive
from undrift.core.tasks.durations import SECOND
from undrift.data import Dataset, DataTask, load
from undrift.data.arrays.dataset import Split
from undrift.data.partitions.draw import Partition, partition
from undrift.models import MLP, SmallCNN
from undrift.studies.protocol import FIRST
from undrift.studies.statistics import corrected_level, late_mean, paired_difference
from undrift.studies.tune import SearchResult, search

LINES = Path(__file__).parent / "results" / "schedules.jsonl"
SEEDS, TUNING = (0, 1, 2, 3, 4), {"classes": 5, "chance": 6}
"""The seeds that judge, and that of each kind of speeds for tuning: a row has one rate for both."""
CLIENTS, FLYING, TRAIN, HELD, TEST = 100, 10, 20_000, 2000, 2000
LOCAL = Local(steps=5, batch_size=20)
MEDIAN, SPREAD = 10.0, 0.9
"""Seconds of the median client's task, and the standard deviation of their logarithm: the 90th percentile is ten times
the 10th."""
BUDGET, MARKS, LAST = 1000, 40, 10
"""Virtual seconds of a run, how often it is evaluated, and how many of the last evaluations make its accuracy."""
SLOW = 3
"""How many classes the slow clients have, where speeds follow classes."""
DATA = {"fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
SPEEDS = {"classes": "slow clients have certain classes", "chance": "slow clients by chance"}
TARGETS = {"fashion-mnist": (0.60, 0.70, 0.75), "cifar10": (0.30, 0.35, 0.40)}
METHODS = {
    "FedAvg": "uniform",
    "SCAFFOLD": "scaffold",
    "whitened": "whitened",
    "over-selected": "uniform + over-selected",
    "FedBuff": "fedbuff(5)",
    "FADAS": "fadas(5, lr={rate})",
    "CA2FL": "ca2fl(5)",
    "SCAFFOLD, buffer": "scaffold + buffered(5)",
    "whitened, buffer": "whitened + buffered(5)",
}
"""The row -> the method. The clients' rate is tuned, or the server's where the text has it."""
BASE, FADAS_LOCAL, FADAS_FIRST = "FedAvg", 0.1, (0.002, 0.004, 0.008, 0.016)


class Run(NamedTuple):
    """What a line is about.

    Args:
        data: of `DATA`.
        speeds: of `SPEEDS`.
        label: of `METHODS`.
        rate: the tuned one.
        seed: of the split, the speeds and the run; those of `TUNING` are judged on held-out examples.
    """

    data: str
    speeds: str
    label: str
    rate: float
    seed: int


Line = Mapping[str, Any]
Place = tuple[str, str, str]
"""Data, speeds and row."""


def build(channels: int, side: int) -> nn.Module:
    """A perceptron with 64 hidden units for grey images, the small CNN for coloured ones.

    Args:
        channels: of the images.
        side: of the images.
    """
    return SmallCNN(10, channels, side) if channels > 1 else MLP(inputs=side**2, outputs=10, width=64)


def halved(dataset: Dataset) -> Dataset:
    """The data with images of half the side: each pixel is the mean of four, in whole bytes.

    Args:
        dataset: the data.
    """
    train, test = (
        replace(x, inputs=nn.functional.avg_pool2d(x.inputs.float(), 2).round().byte())
        for x in (dataset.train, dataset.test)
    )
    return replace(dataset, train=train, test=test)


def judged_on(dataset: Dataset, seed: int) -> Dataset:
    """The clients' examples, and those on which a run is judged: of the test set, or training examples of no client.

    Args:
        dataset: the data.
        seed: of the run.
    """
    held = Split(dataset.train.inputs[TRAIN : TRAIN + HELD], dataset.train.targets[TRAIN : TRAIN + HELD])
    return first_examples(replace(dataset, test=held) if seed in TUNING.values() else dataset, TRAIN, TEST)


def slow_classes(seed: int) -> list[int]:
    """The classes that slow clients have, where speeds follow classes.

    Args:
        seed: of the run.
    """
    return sorted(Random(derive(seed, "slow classes")).sample(range(10), SLOW))


def task_seconds(dealt: Partition, speeds: str, seed: int) -> list[float]:
    """How long a task takes each client: log-normal quantiles, the longest for those with the most of some classes.

    Args:
        dealt: who has which examples.
        speeds: of `SPEEDS`.
        seed: of the run.
    """
    random = Random(derive(seed, "speeds"))
    ties = [random.random() for _ in dealt.clients]
    shares = dealt.histogram[:, slow_classes(seed)].sum(axis=1) if speeds == "classes" else dealt.sizes * 0
    order, normal = sorted(range(len(ties)), key=lambda client: (shares[client], ties[client])), NormalDist(0, SPREAD)
    quantiles = [MEDIAN * exp(normal.inv_cdf((i + 0.5) / len(ties))) for i in range(len(ties))]
    return [seconds for _, seconds in sorted(zip(order, quantiles, strict=True))]


def simulate(dataset: Dataset, about: Run) -> dict[str, Any]:
    """One run, until its virtual time is over.

    Args:
        dataset: the data.
        about: which.
    """
    begun, method = time.process_time(), METHODS[about.label]
    algorithm = make(method.format(rate=about.rate))
    local = replace(LOCAL, lr=FADAS_LOCAL if "{rate}" in method else about.rate)
    data, seed = judged_on(dataset, about.seed), about.seed
    dealt = partition("dirichlet-client:0.1", data.train.targets.numpy(), clients=CLIENTS, seed=seed)
    channels, side, _ = data.shape
    task = DataTask(data, dealt.clients, partial(build, channels, side), seed=seed)
    durations = task_seconds(dealt, about.speeds, seed)
    slowest = set(sorted(range(CLIENTS), key=durations.__getitem__)[-CLIENTS // 4 :])
    simulation = Simulation(algorithm, task, local, cohort=FLYING, seed=seed, durations=durations)
    state, curve, right = simulation.start(), list[tuple[int, float]](), list[Tensor]()
    steps = uploads = slow = rejected = 0
    ages = list[float]()
    while True:
        after, record = simulation.round(state)
        assert record.plan is not None
        seen, step = None, record.plan.row(record.round)
        while len(curve) < MARKS and (mark := (len(curve) + 1) * BUDGET // MARKS) < record.plan.time / SECOND:
            seen = task.correct(simulation.module(state))[0] if seen is None else seen
            curve.append((mark, round_off(float(seen.double().mean()))))
            right.append(seen)
        if len(curve) == MARKS:
            break
        state, steps = after, steps + 1
        uploads, slow = uploads + len(record.clients), slow + len(slowest.intersection(record.clients))
        rejected, ages = rejected + len(record.rejections), [*ages, step.get("age", 0.0)]
    late, classes = torch.stack(right[-LAST:]).double().mean(dim=0), data.test.targets
    floats = vectors_sent(algorithm)[1] * sum(x.numel() for x in task.model().parameters())
    return {
        **about._asdict(),
        "curve": curve,
        "recall": [round_off(float(late[classes == c].mean())) for c in range(10)],
        "slow_classes": slow_classes(seed),
        "steps": steps,
        "uploads": uploads,
        "of_slowest": slow,
        "rejected": rejected,
        "age": round_off(fmean(ages), 2),
        "bytes_up": int(4 * floats * uploads),
        "seconds": round_off(time.process_time() - begun, 1),
    }


def late(line: Line) -> float:
    """The accuracy of a run, in points.

    Args:
        line: of the results.
    """
    return 100 * fmean(x for _, x in line["curve"][-LAST:])


def tuned(data: str, label: str, line: Callable[[Run], Line]) -> SearchResult:
    """The search for the rate of a row: four values, and beyond either end as long as the best is there.

    Args:
        data: of `DATA`.
        label: of `METHODS`.
        line: gives that of a run.
    """

    def score(point: tuple[float, ...]) -> float:
        return fmean(late(line(Run(data, speeds, label, point[0], seed))) for speeds, seed in TUNING.items())

    found = search({"lr": FADAS_FIRST if "{rate}" in METHODS[label] else FIRST["lr"]}, score, widenings=12)
    if found.edges["lr"] != "inside":
        raise SystemExit(f"{data}, {label}: the best rate, {found.best[0]:g}, is at the edge of its grid")
    return found


def time_to(line: Line, target: float) -> int | None:
    """The virtual seconds after which the mean of three evaluations is at a target; None if it never is.

    Args:
        line: of the results.
        target: the accuracy.
    """
    known = [x for _, x in line["curve"]]
    return next((mark for i, (mark, _) in enumerate(line["curve"], 1) if late_mean(known[:i]) >= target), None)


def recalls(line: Line, slow: bool) -> float:
    """The mean recall of the slow clients' classes, or of the others, in points.

    Args:
        line: of the results.
        slow: which.
    """
    return 100 * fmean(x for c, x in enumerate(line["recall"]) if (c in line["slow_classes"]) == slow)


def judging() -> dict[Place, dict[int, Line]]:
    """Data, speeds and row -> seed -> the line, without those of tuning."""
    out: dict[Place, dict[int, Line]] = {}
    for line in read_lines(LINES):
        if line["seed"] in SEEDS:
            out.setdefault((line["data"], line["speeds"], line["label"]), {})[line["seed"]] = line
    return out


def claims(known: Mapping[Place, Any]) -> int:
    """How many intervals the page has when its begun parts are finished.

    Args:
        known: data, speeds and row of the runs that are there.
    """
    begun = {data for data, _, _ in known}
    return max(1, len(begun)) * (len(SPEEDS) * (len(METHODS) - 1) + len(METHODS))


def tables() -> str:
    """The tables of every data set that is begun, in Markdown."""
    lines, known = read_lines(LINES), judging()
    judged = [line for line in lines if line["seed"] in SEEDS]
    count = claims(known)
    parts = [progress(judged, len(DATA) * len(SPEEDS) * len(METHODS) * len(SEEDS)) + f" {len(lines) - len(judged)} "]
    parts[0] += f"trials chose the rates. The page has {count} intervals."
    for data, title in DATA.items():
        for speeds, text in SPEEDS.items():
            rows = {label: known[data, speeds, label] for label in METHODS if (data, speeds, label) in known}
            parts.append(_times(f"{title}, {text}:", data, rows, count))
            parts.append(_spent(rows))
        parts.append(_classes(f"{title}, what the classes of slow clients lose:", data, known, count))
    return "\n\n".join(filter(None, parts))


Rows = Mapping[str, Mapping[int, Line]]


def _times(title: str, data: str, rows: Rows, count: int) -> str:
    """Accuracy, its difference from FedAvg, and the virtual seconds to every target."""
    base = _values(rows.get(BASE, {}), late)
    texts = []
    for label, own in rows.items():
        gap = "" if label == BASE else _gap(_values(own, late), base, count)
        to = [_time_text([time_to(line, target) for line in own.values()]) for target in TARGETS[data]]
        texts.append([label, str(len(own)), f"{fmean(_values(own, late).values()):.1f}", gap, *to])
    heads = [f"seconds to {100 * target:.0f} %" for target in TARGETS[data]]
    return measured(title, ["schedule", "seeds", "accuracy", f"minus {BASE}", *heads], texts)


def _spent(rows: Rows) -> str:
    """The rate, and what a run consists of."""
    texts = []
    for label, own in rows.items():
        mean = {key: fmean(x[key] for x in own.values()) for key in ("steps", "uploads", "of_slowest", "age")}
        sent = fmean(x["bytes_up"] for x in own.values()) / 1e6
        share = 100 * mean["of_slowest"] / mean["uploads"]
        rates = ", ".join(f"{x:g}" for x in sorted({line["rate"] for line in own.values()}))
        numbers = f"{mean['steps']:.0f}", f"{mean['uploads']:.0f}", f"{sent:.0f}", f"{share:.0f}", f"{mean['age']:.1f}"
        texts.append([label, rates, *numbers])
    heads = ["schedule", "rate", "steps", "uploads", "MB up", "uploads of the slowest quarter, %", "age"]
    return measured("", heads, texts).strip()


def _classes(title: str, data: str, known: Mapping[Place, Mapping[int, Line]], count: int) -> str:
    """Recall where speeds follow classes, and what it is less than where they do not."""
    texts = []
    for label in METHODS:
        own, calm = known.get((data, "classes", label), {}), known.get((data, "chance", label), {})
        means = [f"{fmean(recalls(x, slow) for x in own.values()):.1f}" if own else "" for slow in (True, False)]
        slow = partial(recalls, slow=True)
        texts.append([label, *means, _gap(_values(own, slow), _values(calm, slow), count)])
    heads = ["schedule", "recall of their classes", "of the others", "of their classes minus slow by chance"]
    return measured(title, heads, texts)


def _values(own: Mapping[int, Line], value: Callable[[Line], float]) -> dict[int, float]:
    return {seed: value(line) for seed, line in own.items()}


def _gap(ours: Mapping[int, float], theirs: Mapping[int, float], count: int) -> str:
    return gap_text(paired_difference(ours, theirs, corrected_level(count)))


def _time_text(found: Sequence[int | None]) -> str:
    """The mean over the seeds that reached it, and how many did if not all."""
    known = [x for x in found if x is not None]
    if not known:
        return "not reached"
    return f"{fmean(known):.0f}" + ("" if len(known) == len(found) else f" ({len(known)} of {len(found)})")


def figure() -> str:
    """Accuracy over virtual time, a panel for each data set and kind of speeds, as SVG."""
    panels = {(data, speeds): f"{DATA[data]}, {SPEEDS[speeds]}" for data, speeds in product(DATA, SPEEDS)}
    lines = [
        {"setting": panels[data, speeds], "label": label, "curve": line["curve"]}
        for (data, speeds, label), own in judging().items()
        for line in own.values()
    ]
    study = {"methods": [{"label": x} for x in METHODS], "settings": list(panels.values()), "baseline": BASE}
    return curves(study, lines, "virtual seconds") if lines else ""


def main() -> None:
    """Tune every row that is not tuned, then run what is missing of it."""
    options: dict[str, dict[str, Any]] = {
        "data": {"nargs": "*", "default": list(DATA), "help": f"of {', '.join(DATA)}; default both"},
        "--rows": {"nargs": "+", "choices": METHODS, "default": list(METHODS), "help": "only these"},
    }
    arguments = read_arguments(__doc__, tables, options)
    known = {Run(*(line[key] for key in Run._fields)): line for line in read_lines(LINES)}
    for data in arguments.data:
        dataset = halved(load(data))

        def line(about: Run, dataset: Dataset = dataset) -> Line:
            if about not in known:
                known[about] = add_line(LINES, simulate(dataset, about))
            return known[about]

        for label in arguments.rows:
            rate = tuned(data, label, line).best[0]
            for seed, speeds in product(SEEDS, SPEEDS):
                line(Run(data, speeds, label, rate, seed))


if __name__ == "__main__":
    main()
