"""The lens with the model on a device."""

from typing import Any

import torch

from support.devices import LOCAL, needed, task_for
from undrift import lens
from undrift.algorithms import make
from undrift.blocks import high_pass
from undrift.engine.round.simulation import Simulation
from undrift.lens.curvature import flatness, top
from undrift.lens.landscape import EmpiricalLoss, random_directions, surface
from undrift.lens.variance import heterogeneity
from undrift.lens.vectors import client_vectors, sweep

pytestmark = needed


def measured(device: str) -> dict[str, Any]:
    """What the instruments give after two rounds."""
    task = task_for(sizes=(4, 5), dropout=0.2)
    simulation = Simulation(make("fedsam"), task, LOCAL, seed=5, device=device)
    state = simulation.run(2)
    module = simulation.module(state)
    found: dict[str, Any] = {
        what: client_vectors(simulation, state, [0, 1], what) for what in ("gradient", "perturbation", "update")
    }
    found["heterogeneity"] = heterogeneity(simulation, state, [0, 1], filter=high_pass(0.3))
    handed: dict[tuple[int, int], torch.Tensor] = {}
    sweep(simulation, state, [0, 1], lambda client: lambda i, x: handed.update({(client, i): x.cpu().clone()}))
    found["sweep"] = torch.cat([handed[key].flatten() for key in sorted(handed)])
    objective = EmpiricalLoss(module, task.loss, [(task.inputs[:4], task.targets[:4])])
    found["flatness"] = flatness(objective, samples=2)
    found["vectors"] = top(objective, 1).vectors.cpu()
    found["surface"] = surface(objective, *random_directions(objective), points=3).loss.tolist()
    models = state.params + found["update"]
    layers = lens.outlets(module, task.inputs[:2])
    for client, seen in enumerate(lens.client_features(module, models, task.inputs[:4], layers)):
        found |= {f"{client} {name}": x for name, x in seen.items()}
    return found


def test_the_lens_gives_the_bits_of_the_cpu() -> None:
    expected, found = measured("cpu"), measured("pretend")
    assert list(found) == list(expected)
    for name, value in expected.items():
        same = torch.equal(value, found[name]) if isinstance(value, torch.Tensor) else value == found[name]
        assert same, name
