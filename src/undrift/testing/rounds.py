"""Small rounds that the contract's checks take apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from undrift.core.client.visit import ClientError
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Broadcast, ClientState, Local, ServerState, Upload
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.server.wire import fingerprint
from undrift.engine.round.simulation import Simulation
from undrift.engine.stores.store import MemoryStore
from undrift.secure.settings import Secure
from undrift.testing.tasks import Clinic, clinic
from undrift.testing.watch import ContractError

LOCAL = Local(lr=0.05, decay=0.9, weight_decay=1e-3, clip=10.0, epochs=2, batch_size=4)
CLIENTS = tuple(client for client in range(len(Clinic.sizes)) if Clinic.sizes[client])


def demand(kept: bool, promise: str) -> None:
    """Raise unless a promise was kept."""
    if not kept:
        raise ContractError(promise)


@dataclass(frozen=True, eq=False)
class Round:
    """One round taken apart."""

    before: ServerState
    broadcast: Broadcast
    uploads: list[Upload]
    models: dict[int, Vector]
    states: dict[int, ClientState]
    after: ServerState
    layout: Layout
    simulation: Simulation


@lru_cache(maxsize=2)
def play(algorithm: Algorithm, task: Clinic) -> Round:
    """The third round of a run, with everything that moved in it; the last few are kept, for many checks to share."""
    simulation = simulate(algorithm, task)
    before = run(simulation, 2)
    broadcast = server.send(algorithm, before, simulation.setting)
    gate = Gate(algorithm, LOCAL, broadcast, CLIENTS)
    total = gate.total()
    uploads, models = [], {}
    for client in CLIENTS:
        upload = visit(simulation, client, broadcast, before, gate)
        uploads.append(upload)
        models[client] = simulation.worker.model.w.clone()
        demand(gate.admit(upload, total) is None, f"an honest upload was rejected: {gate.rejections}")
    after = simulation.close(before, broadcast, total)
    layout, kept = simulation.worker.model.layout, _kept_states(simulation, broadcast.round)
    return Round(before, broadcast, uploads, models, kept, after, layout, simulation)


def visit(simulation: Simulation, client: int, broadcast: Broadcast, state: ServerState, gate: Gate) -> Upload:
    """Train one client that has examples; a broken promise inside a hook is raised as such."""
    worker = simulation.worker
    upload = worker.visit(client, broadcast, state.accepted.get(client), gate)
    if upload is None:
        failure, worker.failure = worker.failure, None
        raise _breach(failure or ContractError(f"client {client}: {gate.rejections}"))
    return upload


def run(
    simulation: Simulation, rounds: int, state: ServerState | None = None, clients: Sequence[int] | None = None
) -> ServerState:
    """Some rounds, of the clients given or of those drawn; a broken promise inside a hook is raised as such."""
    state = state or simulation.start()
    try:
        for _ in range(rounds):
            state, record = simulation.round(state, clients)
            rejected = [str(r) for r in record.rejections if r.reason is not Reason.EMPTY]
            demand(not rejected, f"an honest upload was rejected: {'; '.join(rejected)}")
    except ClientError as error:
        raise _breach(error) from error
    return state


def simulate(algorithm: Algorithm, task: Clinic | None = None) -> Simulation:
    """A small run with odd clients; None takes the model that fits."""
    return simulate_plain(algorithm, task or clinic(algorithm), LOCAL, cohort=5, seed=7, failures="raise")


def simulate_plain(algorithm: Algorithm, task: Clinic, local: Local, **settings: Any) -> Simulation:
    """A run that adds uploads as they are, also where noise in shares needs a secure sum: the bits are the same.

    Args:
        algorithm: the method.
        task: the model and the data.
        local: the settings all clients share.
        settings: further ones of `Simulation`.
    """
    least = algorithm.release.least
    simulation = Simulation(algorithm, task, local, secure=Secure(least) if least else None, **settings)
    simulation.secure = None
    return simulation


def states_of(simulation: Simulation) -> dict[int, dict[int, ClientState]]:
    """All clients' states of a run that keeps them in memory."""
    store = simulation.worker.store
    assert isinstance(store, MemoryStore)
    return store.states


def fingerprints(states: dict[int, dict[int, ClientState]]) -> dict[int, dict[int, str]]:
    """The fingerprints of all clients' states."""
    return {client: {round: fingerprint(kept) for round, kept in held.items()} for client, held in states.items()}


def _kept_states(simulation: Simulation, round: int) -> dict[int, ClientState]:
    """What the clients kept of a round."""
    return {client: held[round] for client, held in states_of(simulation).items() if round in held}


def _breach(error: BaseException) -> ContractError:
    """The broken promise behind a failed training, or the failure itself as one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ContractError):
            return cause
        cause = cause.__cause__
    return ContractError(f"training failed: {error}")
