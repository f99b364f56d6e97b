"""Undrift in one process."""

import torch

from task import CLIENTS, COHORTS, HYPER, LR, STEPS, linear, own, row
from undrift import Local, Simulation, TensorTask, make

PACKAGE = "undrift"


def run(method: str) -> list[list[float]]:
    """The models of a method.

    Args:
        method: one of the task's.
    """
    data = [own(client) for client in range(len(CLIENTS.targets))]
    sizes = [len(y) for _, y in data]
    task = TensorTask(
        linear,
        torch.cat([x for x, _ in data]),
        torch.cat([y for _, y in data]),
        torch.split(torch.arange(sum(sizes)), sizes),
    )
    local = Local(lr=LR, epochs=STEPS, batch_size=max(sizes))
    rows = []
    with Simulation(make(method.lower(), **HYPER[method]), task, local, cohort=len(COHORTS[0])) as simulation:
        state = simulation.start()
        for cohort in COHORTS:
            state, _ = simulation.round(state, list(cohort))
            rows.append(state.params.tolist())
        if method == "Ditto":
            rows += [row(simulation.personal(state, client)) for client in range(len(sizes))]
    return rows
