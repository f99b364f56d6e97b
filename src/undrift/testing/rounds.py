"""Small rounds that the contract's checks take apart."""

from dataclasses import dataclass

from undrift.core import server
from undrift.core.algorithm import Algorithm
from undrift.core.gate import Gate
from undrift.core.reduce import Total
from undrift.core.types import Broadcast, ClientState, Local, ServerState, Upload
from undrift.core.vector import Layout
from undrift.core.wire import fingerprint
from undrift.engine.simulation import Simulation
from undrift.engine.store import MemoryStore
from undrift.testing.tasks import Clinic, clinic

LOCAL = Local(lr=0.05, decay=0.9, weight_decay=1e-3, clip=10.0, epochs=2, batch_size=4)


class ContractError(AssertionError):
    """A promise of the contract that was broken."""


def demand(kept: bool, promise: str) -> None:
    """Raise unless a promise was kept."""
    if not kept:
        raise ContractError(promise)


@dataclass(frozen=True)
class Round:
    """One round taken apart."""

    before: ServerState
    broadcast: Broadcast
    uploads: list[Upload]
    states: dict[int, ClientState]
    after: ServerState
    layout: Layout
    simulation: Simulation


def play(algorithm: Algorithm, task: Clinic | None = None) -> Round:
    """The third round of a run, with everything that moved in it."""
    simulation = simulate(algorithm, task)
    before = simulation.run(2)
    broadcast = server.send(algorithm, before)
    clients = [client for client in range(len(Clinic.sizes)) if client != 1]
    gate = Gate(algorithm, LOCAL, broadcast, clients)
    total: Total = gate.total()
    uploads = []
    for client in clients:
        upload = simulation.worker.visit(client, broadcast, before.accepted.get(client), gate)
        demand(upload is not None, f"client {client} failed: {gate.rejections}")
        assert upload is not None
        uploads.append(upload)
        demand(gate.admit(upload, total) is None, f"an honest upload was refused: {gate.rejections}")
    after = simulation.close(before, broadcast, total)
    states = {
        client: held[broadcast.round] for client, held in states_of(simulation).items() if broadcast.round in held
    }
    return Round(before, broadcast, uploads, states, after, simulation.worker.model.layout, simulation)


def simulate(algorithm: Algorithm, task: Clinic | None = None) -> Simulation:
    """A small run with odd clients; None takes the model that fits."""
    return Simulation(algorithm, task or clinic(algorithm), LOCAL, cohort=5, seed=7)


def states_of(simulation: Simulation) -> dict[int, dict[int, ClientState]]:
    """All clients' states of a run that keeps them in memory."""
    store = simulation.worker.store
    assert isinstance(store, MemoryStore)
    return store.states


def fingerprints(states: dict[int, dict[int, ClientState]]) -> dict[int, dict[int, str]]:
    """The fingerprints of all clients' states."""
    return {client: {round: fingerprint(kept) for round, kept in held.items()} for client, held in states.items()}
