"""FedFSA's three measures of a layer's change: how often they choose the same layers, and what comes of it.

Fashion-MNIST, 4,000 training examples over 20 clients (Dirichlet 0.3), 10 of them in each of 20 rounds, two epochs, the
small CNN, radii 0.01 and 0.02, three seeds. Every visit is scored by all three measures and follows one of them.
"agree" has the share of the visits in which two measures choose the same two layers, "chosen" how often each layer is.

    python benchmarks/studies/sensitivity.py --json > benchmarks/studies/results/sensitivity.json
"""

import argparse
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import torch

from shared import first_examples, personal_accuracy, versions
from undrift import Local, Simulation, make
from undrift.blocks import FSA
from undrift.blocks.perturbation.fsa import MEASURES, Top, eligible, rank_scores, sensitivity
from undrift.core.method.view import End
from undrift.data import Dataset, DataTask, load
from undrift.data.partitions.draw import partition
from undrift.runs.setup.choose_model import model_maker

LOCAL = Local(lr=0.1, epochs=2, batch_size=50, weight_decay=1e-3, clip=10.0)
ROUNDS, CLIENTS, COHORT, SEEDS = 20, 20, 10, (0, 1, 2)


@dataclass(frozen=True)
class Counted(FSA):
    """FSA that counts which layers each measure would choose."""

    counts: Counter[str] = field(default_factory=Counter)

    def finish(self, state: Any, end: End) -> tuple[None, Top]:
        """Choose as FSA does, after counting what every measure chooses."""
        names, old, new = end.layout.names, end.layout.split(end.w0), end.layout.split(end.w)
        places, tops = eligible(end.layout), {}
        for measure in MEASURES:
            scores = [sensitivity(old[k], new[k], measure) for k in places]
            tops[measure] = {names[places[i]] for i in rank_scores(scores)[: self.count]}
        self.counts["visits"] += 1
        self.counts.update(f"{a}, {b}" for a, b in combinations(MEASURES, 2) if tops[a] == tops[b])
        self.counts.update(f"{measure}: {name}" for measure, top in tops.items() for name in top)
        return super().finish(state, end)


def measure_choices(dataset: Dataset, measure: str, seed: int) -> dict[str, Any]:
    """One run, with what each measure would have chosen in it.

    Args:
        dataset: the data.
        measure: the measure that the run follows.
        seed: of split, model and run.
    """
    clients = partition("dirichlet(0.3)", dataset.train.targets.numpy(), clients=CLIENTS, seed=seed).clients
    task = DataTask(dataset, clients, model_maker("small-cnn", dataset))
    block = Counted(0.01, 0.02, measure=measure)
    simulation = Simulation(replace(make("fedfsa"), perturbation=block), task, LOCAL, cohort=COHORT, seed=seed)
    state = simulation.run(ROUNDS)
    visits = block.counts.pop("visits")
    shares = {name: round(n / visits, 4) for name, n in sorted(block.counts.items())}
    return {
        "measure": measure,
        "seed": seed,
        "accuracy": round(task.test(simulation.module(state)).accuracy, 4),
        "personal": round(personal_accuracy(task, simulation, state), 4),
        "visits": visits,
        "agree": {name: share for name, share in shares.items() if ":" not in name},
        "chosen": {name: share for name, share in shares.items() if ":" in name},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = first_examples(load("fashion-mnist"), 4000, 1000)
    rows = [measure_choices(dataset, measure, seed) for measure in MEASURES for seed in SEEDS]
    print(
        json.dumps({"rows": rows, "environment": versions()}, indent=1) if options.json else "\n".join(map(str, rows))
    )


if __name__ == "__main__":
    main()
