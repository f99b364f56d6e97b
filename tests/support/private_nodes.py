"""What one process makes of the secrets that nodes drew their shares of noise from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undrift import Local, Simulation, parse
from undrift.blocks.release.shares import Draw, PrivateShares
from undrift.core.method.view import End
from undrift.core.method.with_hooks import with_hooks
from undrift.core.model.random import derive
from undrift.core.records.types import ServerState
from undrift.engine.flower.node.noise import NodeNoise


def secrets_of(root: Path, nodes: Mapping[int, Iterable[int]]) -> dict[int, NodeNoise]:
    """The noise of every client whose node has begun a round.

    Args:
        root: the folder with the nodes' states, at any depth.
        nodes: the clients of each node, by its ID.
    """
    files = {int(path.name.removeprefix("noise-")): path for path in root.rglob("noise-*")}
    return {client: NodeNoise(files[node]) for node, clients in nodes.items() if node in files for client in clients}


def replay_private(
    method: str,
    task: Any,
    local: Local,
    rounds: Sequence[Sequence[int]],
    held: Mapping[int, NodeNoise],
    **settings: Any,
) -> ServerState:
    """The state after rounds with these clients, whose noise is that of their nodes.

    Args:
        method: the method, with noise in shares.
        task: the task.
        local: the settings of training.
        rounds: the clients of each round.
        held: the noise of each client's node.
        settings: of the simulation: seed, secure.
    """
    simulation = Simulation(parse(method), task, local, **settings)
    release, job = simulation.job.algorithm.release, simulation.worker.job
    assert isinstance(release, PrivateShares)

    def open_noise(_: PrivateShares, end: End) -> Draw:
        label = end.random("share").initial_seed()
        client = next(c for c in held if derive(simulation.seed, end.round, c, "share") == label)
        held[client].round = end.round
        return held[client].open(label)

    secret = with_hooks(release, {"open_noise": open_noise})
    simulation.worker.job = replace(job, algorithm=replace(job.algorithm, release=secret))
    state = simulation.start()
    for clients in rounds:
        state, record = simulation.round(state, clients)
        assert list(record.clients) == list(clients)
    return state
