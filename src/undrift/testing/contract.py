"""The contract every block and algorithm keeps, as checks that anyone can run on their own.

Each check trains a small model for a few rounds and looks at the bits. A breach raises `ContractError`, which says
what was promised and where it was broken.
"""

from dataclasses import dataclass, is_dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from undrift import server, wire
from undrift.algorithm import Algorithm
from undrift.block import SLOTS, Block, Personalization
from undrift.blocks import Private
from undrift.engine.local import Simulation
from undrift.engine.store import MemoryStore
from undrift.gate import Gate
from undrift.reduce import Total
from undrift.testing.tasks import Clinic
from undrift.types import Broadcast, ClientState, Local, ServerState, Upload, kinds
from undrift.wire import fingerprint

LOCAL = Local(lr=0.05, decay=0.9, weight_decay=1e-3, clip=10.0, epochs=2, batch_size=4)
HEAD = ("head.*",)


class ContractError(AssertionError):
    """A promise of the contract that was broken."""


def check_block(block: Block, slot: str | None = None, host: Algorithm | None = None) -> None:
    """Check a block by itself and inside an algorithm.

    Args:
        block: an instance with the arguments to check.
        slot: the slot it goes into; needed for corrections, which fit two.
        host: the algorithm to put it into; needed if the block requires others. None is FedAvg.
    """
    if slot is None:
        homes = [name for name, kind in SLOTS.items() if isinstance(block, kind)]
        _demand(len(homes) == 1, f"{type(block).__name__} fits {homes or 'no slot'}: pass slot=")
        slot = homes[0]
    _demand(is_dataclass(block), f"{type(block).__name__} must be a dataclass(frozen=True)")
    try:
        hash(block)
    except TypeError as error:
        raise ContractError(f"{type(block).__name__} must be immutable and hashable: {error}") from None
    for place in ("Server", "Client", "Sent", "Up"):
        kinds(getattr(block, place))
    filled: dict[str, Any] = {slot: block}
    check_algorithm(replace(host or Algorithm(), **filled))


def check_algorithm(algorithm: Algorithm) -> None:
    """Check everything the contract promises of an algorithm: the functions below, one by one."""
    check_trees(algorithm)
    check_inputs(algorithm)
    check_wire(algorithm)
    check_resume(algorithm)
    check_order(algorithm)
    check_privacy(algorithm)
    check_provisional(algorithm)
    check_degenerate(algorithm)


def check_trees(algorithm: Algorithm) -> None:
    """What blocks keep, send and upload is exactly what they declare."""
    round = _play(algorithm)
    for block_place, parts in [
        ("Server", round.before.parts),
        ("Server", round.after.parts),
        ("Sent", round.broadcast.parts),
        *(("Client", state.parts) for state in round.states.values()),
        *(("Up", upload.parts) for upload in round.uploads),
    ]:
        declared = {slot: getattr(block, block_place) for slot, block in algorithm.slots()}
        expected = {slot for slot, tree in declared.items() if tree is not None}
        _demand(set(parts) == expected, f"{block_place}: parts {sorted(parts)}, declared {sorted(expected)}")
        for slot, tree in parts.items():
            where = f"{slot}.{block_place}"
            _demand(type(tree) is declared[slot], f"{where}: got {type(tree).__name__}, declared {declared[slot]}")
            for (name, kind), x in zip(kinds(declared[slot]).items(), tree or (), strict=True):
                _demand(_is(kind, x, round.after.params), f"{where}.{name}: declared a {kind}, got {_describe(x)}")


def check_inputs(algorithm: Algorithm) -> None:
    """No verb changes what it was given."""
    simulation = _simulation(algorithm)
    state = simulation.run(2)
    broadcast = server.send(algorithm, state)
    gate = Gate(algorithm, LOCAL, broadcast, range(simulation.task.population))
    total = gate.total()
    for client in (3, 4, 5):
        before = fingerprint(broadcast), fingerprint(state), _fingerprints(_states(simulation))
        kept = {client: dict(held) for client, held in _states(simulation).items()}
        upload = simulation.worker.visit(client, broadcast, state.accepted.get(client), gate)
        assert upload is not None
        after = fingerprint(broadcast), fingerprint(state), _fingerprints(kept)
        _demand(before == after, f"training client {client} changed what it had received or kept")
        sent = fingerprint(upload)
        gate.admit(upload, total)
        _demand(sent == fingerprint(upload), "adding an upload changed it")
    before_close = fingerprint(state)
    simulation.close(state, broadcast, total)
    _demand(before_close == fingerprint(state), "the server step changed the state it started from")


def check_wire(algorithm: Algorithm) -> None:
    """Everything that travels or is stored comes back bit for bit."""
    round = _play(algorithm)
    nouns: list[Any] = [round.before, round.after, round.broadcast, *round.uploads, *round.states.values()]
    for noun in nouns:
        back = wire.from_bytes(type(noun), algorithm, wire.to_bytes(noun), len(round.after.params))
        _demand(fingerprint(back) == fingerprint(noun), f"{type(noun).__name__} came back from the wire changed")


def check_resume(algorithm: Algorithm) -> None:
    """Stopping, writing everything down and going on equals going on, bit for bit."""
    whole = _simulation(algorithm).run(4)
    first = _simulation(algorithm)
    stopped = first.run(2)
    size = len(stopped.params)
    second = _simulation(algorithm)
    for client, held in _states(first).items():
        _states(second)[client] = {
            round: wire.from_bytes(ClientState, algorithm, wire.to_bytes(kept), size) for round, kept in held.items()
        }
    state = wire.from_bytes(ServerState, algorithm, wire.to_bytes(stopped), size)
    _demand(fingerprint(second.run(2, state)) == fingerprint(whole), "a resumed run differs from an uninterrupted one")


def check_order(algorithm: Algorithm) -> None:
    """The order of clients and their grouping into partial sums do not change a bit."""
    round = _play(algorithm)
    draw = Random(0)  # noqa: S311
    for groups in (1, 2, 3, len(round.uploads)):
        uploads = draw.sample(round.uploads, len(round.uploads))
        gate = Gate(algorithm, LOCAL, round.broadcast, [upload.client for upload in uploads])
        partial = [gate.total() for _ in range(groups)]
        for upload in uploads:
            _demand(
                gate.admit(upload, draw.choice(partial)) is None,
                f"an honest upload was refused: {gate.rejections}",
            )
        total = gate.total()
        for part in draw.sample(partial, groups):
            total.merge(part)
        after = server.close(algorithm, round.before, round.broadcast, total, len(Clinic.sizes), LOCAL)
        _demand(
            fingerprint(after) == fingerprint(round.after),
            f"another order or grouping ({groups} groups) changed the bits",
        )


def check_privacy(algorithm: Algorithm) -> None:
    """Nothing of the private part of a model leaves a client."""
    if type(algorithm.personalization) is Personalization:
        algorithm = replace(algorithm, personalization=Private(HEAD))
    round = _play(algorithm)
    mask = algorithm.personalization.shared(round.layout)
    if mask is None:
        return
    for upload in round.uploads:
        for name, x in wire.flatten(upload).items():
            if x.shape == mask.shape:
                _demand(not bool(x[~mask].any()), f"{name} carries private values")


def check_provisional(algorithm: Algorithm) -> None:
    """An upload that is not accepted leaves no trace, on the server or on the client."""
    steady, shaken = _simulation(algorithm), _simulation(algorithm)
    state = steady.run(1)
    lost = shaken.run(1)
    broadcast = server.send(algorithm, lost)
    gate = Gate(algorithm, LOCAL, broadcast, range(shaken.task.population))
    for client in range(shaken.task.population):
        shaken.worker.visit(client, broadcast, lost.accepted.get(client), gate)
    _demand(
        fingerprint(shaken.run(2, lost)) == fingerprint(steady.run(2, state)),
        "a round whose replies were lost changed the rounds after it",
    )


def check_degenerate(algorithm: Algorithm) -> None:
    """One example, a zero gradient and no examples at all give finite values."""
    for clients in ([0], [2], [1], [0, 1, 2], list(range(8))):
        simulation = _simulation(algorithm)
        state = simulation.start()
        for _ in range(3):
            state, record = simulation.round(state, clients)
            failed = [r for r in record.rejections if r.client != 1]
            _demand(not failed, f"clients {clients}: {'; '.join(map(str, failed))}")
        for name, x in wire.flatten(state).items():
            _demand(bool(torch.isfinite(x.double()).all()), f"clients {clients}: {name} is not finite")


@dataclass(frozen=True)
class _Round:
    """One round taken apart."""

    before: ServerState
    broadcast: Broadcast
    uploads: list[Upload]
    states: dict[int, ClientState]
    after: ServerState
    layout: Any


def _play(algorithm: Algorithm) -> _Round:
    """The third round of a run, with everything that moved in it."""
    simulation = _simulation(algorithm)
    before = simulation.run(2)
    broadcast = server.send(algorithm, before)
    clients = [client for client in range(len(Clinic.sizes)) if client != 1]
    gate = Gate(algorithm, LOCAL, broadcast, clients)
    total: Total = gate.total()
    uploads = []
    for client in clients:
        upload = simulation.worker.visit(client, broadcast, before.accepted.get(client), gate)
        _demand(upload is not None, f"client {client} failed: {gate.rejections}")
        assert upload is not None
        uploads.append(upload)
        _demand(gate.admit(upload, total) is None, f"an honest upload was refused: {gate.rejections}")
    after = simulation.close(before, broadcast, total)
    states = {client: held[broadcast.round] for client, held in _states(simulation).items() if broadcast.round in held}
    return _Round(before, broadcast, uploads, states, after, simulation.worker.model.layout)


def _simulation(algorithm: Algorithm) -> Simulation:
    """A small run with odd clients."""
    return Simulation(algorithm, Clinic(), LOCAL, cohort=5, seed=7)


def _states(simulation: Simulation) -> dict[int, dict[int, ClientState]]:
    """All clients' states of a run that keeps them in memory."""
    store = simulation.worker.store
    assert isinstance(store, MemoryStore)
    return store.states


def _fingerprints(states: dict[int, dict[int, ClientState]]) -> dict[int, dict[int, str]]:
    """The fingerprints of all clients' states."""
    return {client: {round: fingerprint(kept) for round, kept in held.items()} for client, held in states.items()}


def _is(kind: str, x: Any, params: Tensor) -> bool:
    """Whether a field holds what it declares."""
    if kind == "vector":
        return isinstance(x, Tensor) and x.shape == params.shape and x.dtype == params.dtype
    if kind == "array":
        return isinstance(x, Tensor)
    return isinstance(x, float if kind == "float" else int)


def _describe(x: Any) -> str:
    """A value in a few words."""
    return f"a tensor {tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else repr(x)


def _demand(kept: bool, promise: str) -> None:
    """Raise unless a promise was kept."""
    if not kept:
        raise ContractError(promise)
