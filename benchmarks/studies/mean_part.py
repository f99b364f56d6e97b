r"""How much of the difference between clients' gradients lies in the part that centering removes? By layer and skew.

FedAvg for ten rounds with each kind of skew, then the gradients of 20 clients at the global model on 200 examples each.
And the updates of 8 clients, in two parts, the mean over inputs and the rest: what each part alone does to the loss on
the client's own test and on the test set of all clients; as a control, the whole update shortened to the length of the
rest. docs/evidence/findings/mean-part.md describes the results.

    python benchmarks/studies/mean_part.py --json > benchmarks/studies/results/mean-part.json
    python benchmarks/studies/mean_part.py --draw docs/evidence/findings/mean-part.svg \
        < benchmarks/studies/results/mean-part.json
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

from shared import first_examples, measure_or_draw, svg
from undrift import Simulation
from undrift.blocks import center, high_pass
from undrift.core.model.flat_model import Layout, layout_of
from undrift.core.records.types import ServerState
from undrift.data import DataTask, load
from undrift.lens import client_vectors, removal_by_layer
from undrift.runs import Config
from undrift.runs.setup.prepare import prepare

DATA = ("fashion-mnist", "cifar10")
KINDS = {
    "label-0.1": "dirichlet:0.1",
    "label-0.3": "dirichlet:0.3",
    "quantity": "quantity:0.3",
    "feature": "corrupt,types=gaussian-noise+fog+contrast+pixelate",
    "iid": "iid",
}
FILTERS = {"inputs": center("inputs"), "maps": center("maps"), "high-pass": high_pass(0.05)}
ROUNDS, CLIENTS, SAMPLES, UPDATES, TESTED = 10, 20, 200, 8, 2000


def case(data: str, kind: str) -> dict[str, Any]:
    """One data set with one kind of skew.

    Args:
        data: the data set.
        kind: of `KINDS`.
    """
    local = {"preset": "papers", "steps": 10, "batch_size": 20, "lr": 0.1}
    settings = {"data": data, "partition": KINDS[kind], "model": "small-cnn", "weights": "uniform", "local": local}
    dataset = load(data)
    few = first_examples(dataset, len(dataset.train.targets), TESTED)
    ready = prepare(Config.build({**settings, "clients": 100, "cohort": 10, "rounds": ROUNDS}), few)
    simulation = Simulation(ready.algorithm, ready.task, ready.local, cohort=10)
    layout = layout_of(ready.task.model())
    state = simulation.run(ROUNDS)
    vectors = client_vectors(simulation, state, list(range(CLIENTS)), "gradient", samples=SAMPLES)
    found = {name: removal_by_layer(vectors, layout, filter).as_dict() for name, filter in FILTERS.items()}
    rounded = {name: {key: round(x, 4) for key, x in numbers.items()} for name, numbers in found.items()}
    done = effects(simulation, state, ready.data_task, layout)
    about = {"data": data, "kind": kind, "effects": done}
    return {**about, "layers": [x for x in layout.names if "weight" in x], "filters": rounded}


def effects(simulation: Simulation, state: ServerState, task: DataTask, layout: Layout) -> dict[str, dict[str, float]]:
    """What parts of clients' updates do to the loss, on average: of the client's own test, and of the test set.

    Args:
        simulation: the simulation.
        state: its state.
        task: its task.
        layout: of the model.
    """
    vectors = client_vectors(simulation, state, list(range(UPDATES)), "update")
    sums: dict[str, list[list[float]]] = {"whole": [], "mean": [], "kept": [], "shorter": []}
    everywhere = task.test(simulation.module(state)).loss
    for client, update in enumerate(vectors):
        kept = FILTERS["inputs"](update, layout)
        own = task.own_score(simulation.module(state), client).loss
        shorter = update * (kept.norm() / update.norm())
        for name, part in (("whole", update), ("mean", update - kept), ("kept", kept), ("shorter", shorter)):
            module = simulation.module(replace(state, params=state.params + part))
            changes = (task.own_score(module, client).loss - own, task.test(module).loss - everywhere)
            sums[name].append([float(part.norm()), *changes])
    means = {name: torch.tensor(rows).mean(dim=0).tolist() for name, rows in sums.items()}
    return {name: dict(zip(("norm", "own", "test"), map(_short, x), strict=True)) for name, x in means.items()}


def _short(value: float) -> float:
    return round(value, 4)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The share of the variance between clients in the mean over inputs, and of the energy, by layer and kind.

    Args:
        rows: from `case`.
        path: the SVG file.
    """
    with rc_context({"svg.hashsalt": "undrift", "font.size": 9}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        for place, data in enumerate(DATA):
            axes = figure.add_subplot(2, 1, place + 1)
            own = [row for row in rows if row["data"] == data]
            for k, row in enumerate(own):
                numbers, layers = row["filters"]["inputs"], [*row["layers"], ""]
                for i, layer in enumerate(layers):
                    key = f"{layer}/" if layer else ""
                    x = i + (k - len(own) / 2 + 0.5) * 0.16
                    axes.bar(x, numbers[f"{key}variance"], 0.14, color=f"C{k}", label=row["kind"] if not i else None)
                    axes.plot([x - 0.07, x + 0.07], [numbers[f"{key}energy"]] * 2, color="black", linewidth=1.2)
            axes.set_xticks(range(len(layers)), [layer.removesuffix(".weight") or "all" for layer in layers])
            axes.set_ylabel("share in the mean part")
            axes.set_title(f"{data}, small CNN: variance between clients (bars), energy (lines)", fontsize=9)
        axes.legend(fontsize=8, ncols=5)
        path.write_text(svg(figure))


if __name__ == "__main__":
    measure_or_draw(__doc__, (case(data, kind) for data in DATA for kind in KINDS), draw)
