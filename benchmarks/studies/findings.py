"""Where in the spectrum do clients disagree? Our measurements of the papers' claim, raw and normalised.

For two data sets and two models each: FedAvg (Dirichlet 0.1, 10 of 100 clients, one epoch), and at some rounds the
gradients of 20 clients at the global model, in ten bands of equal width. docs/evidence/findings describes the results.

    python benchmarks/studies/findings.py --json > benchmarks/studies/results/findings.json
    python benchmarks/studies/findings.py --draw docs/evidence/findings < benchmarks/studies/results/findings.json
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

from shared import measure_or_draw
from undrift import Local, Simulation, make
from undrift.blocks import high_pass
from undrift.core.model.flat_model import layout_of
from undrift.data import DataTask, load
from undrift.data.partitions.draw import partition
from undrift.lens import client_vectors, consensus, filtering, spread
from undrift.models import build
from undrift.report import write_prints
from undrift.report.draw.description import Axis, Figure, Line, line_panel

CASES = [("fashion-mnist", "small-cnn"), ("fashion-mnist", "resnet8"), ("cifar10", "cnn"), ("cifar10", "resnet8")]
ROUNDS = (0, 5, 15)
LOCAL = Local(lr=0.05, epochs=1, batch_size=50, weight_decay=1e-3, clip=10.0)


def look(simulation: Simulation, state: Any, clients: list[int], layout: Any) -> dict[str, Any]:
    """The numbers of one round."""
    numbers: dict[str, Any] = {"round": state.round}
    for what in ("gradient", "update"):
        vectors = client_vectors(simulation, state, clients, what, samples=200)
        shared, apart = consensus(vectors, layout), spread(vectors, layout)
        overall = shared.overall
        numbers[what] = {
            "distance": [round(x, 5) for x in apart.overall["distance"].tolist()],
            "normalised": [round(x, 4) for x in apart.overall["normalised"].tolist()],
            "energy_share": [round(x, 4) for x in overall["energy_share"].tolist()],
            "agreement": [round(x, 4) for x in overall["agreement"].tolist()],
            "disagreement_share": _shares(((shared.energy - shared.shared).sum(dim=0)).tolist()),
            "filtering": {
                f"r={r}": {k: round(v, 4) for k, v in filtering(vectors, layout, high_pass(r)).items()}
                for r in (0.01, 0.05, 0.2)
            },
        }
    return numbers


def _shares(values: list[float]) -> list[float]:
    return [round(x / sum(values), 4) for x in values]


def case(data: str, model: str) -> dict[str, Any]:
    """One data set with one model."""
    dataset = load(data)
    clients = partition("dirichlet:0.1", dataset.train.targets.numpy(), clients=100, seed=0).clients
    channels, image = dataset.shape[0], dataset.shape[1]
    task = DataTask(dataset, clients, partial(build, model, classes=10, channels=channels, image=image))
    simulation = Simulation(make("fedavg"), task, LOCAL, cohort=10)
    layout, watched = layout_of(task.model()), list(range(20))
    state, looks, begun = simulation.start(), [], time.perf_counter()
    for number in range(max(ROUNDS) + 1):
        if number in ROUNDS:
            looks.append(look(simulation, state, watched, layout))
        if number < max(ROUNDS):
            state = simulation.run(1, state)
    seconds = time.perf_counter() - begun
    return {"data": dataset.title, "model": model, "rounds": looks, "seconds": round(seconds)}


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """One figure: where clients' gradients differ, and where they agree, after the last round."""
    axis = Axis("frequency (share of the highest)")
    parts = []
    for key, title in (("normalised", "distance of clients (length one)"), ("agreement", "agreement of clients")):
        lines = []
        for style, row in enumerate(rows):
            values = row["rounds"][-1]["gradient"][key]
            places = [(n + 0.5) / len(values) for n in range(len(values))]
            lines.append(Line(f"{row['data']}, {row['model']}", style, places, values))
        parts.append(("", line_panel(axis, Axis(title), lines, dots=True)))
    title = f"Clients' gradients after {max(ROUNDS)} rounds of FedAvg"
    write_prints([Figure("low-frequencies", title, "", tuple(parts))], folder)
    (folder / "low-frequencies.pdf").unlink()


if __name__ == "__main__":
    measure_or_draw(__doc__, (case(data, model) for data, model in CASES), draw)
