"""How many of a client's digits are computed back from what others see of it, without protection and with two kinds.

The rows of the settings of each run, as `undrift audit RUN --inversion` has them; one seed, a few seconds each.

    python benchmarks/studies/inversion.py > benchmarks/studies/results/inversion.json
"""

import json
from dataclasses import asdict
from typing import Any

import torch

from undrift.runs import Config, invert_uploads
from undrift.runs.setup.open_simulation import make_simulation
from undrift.runs.setup.prepare import prepare

BASE = {"data": "digits", "model": "mlp", "clients": 20, "local": {"epochs": 2}}
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": {"method": "fedavg", "cohort": 10},
    "uniform + private-sum(0.5, 1.0)": {"method": "uniform + private-sum(0.5, 1.0)", "probability": 0.5},
    "scaffold, secure": {"method": "scaffold", "cohort": 10, "secure": True, "output": {"lens_every": 0}},
}


def attacked(name: str) -> list[dict[str, Any]]:
    """The attacks on one run with its own settings, by the server and by those who see the models.

    Args:
        name: one of `RUNS`.
    """
    setup = prepare(Config.build({**BASE, **RUNS[name]}))
    return [asdict(row) for row in invert_uploads(make_simulation(setup, secure=setup.config.secure)) if row.steps > 1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"settings": BASE, "seed": 0, "runs": {name: attacked(name) for name in RUNS}}, indent=1))
