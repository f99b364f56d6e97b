"""The contract every block and algorithm keeps, as checks that anyone can run on their own.

Each check trains a small model for a few rounds and looks at the bits. A breach raises `ContractError`, which says
what was promised and where it was broken.
"""

import random
from dataclasses import is_dataclass, replace
from inspect import isfunction, signature
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undrift.blocks import Private
from undrift.core import server, wire
from undrift.core.algorithm import SLOTS, Algorithm
from undrift.core.block import AnyBlock, Personalization
from undrift.core.gate import Gate
from undrift.core.types import ClientState, ServerState, kinds
from undrift.core.wire import fingerprint
from undrift.testing.rounds import LOCAL, ContractError, demand, fingerprints, play, simulate, states_of
from undrift.testing.tasks import Clinic

HEAD = ("head.*",)


def check_block(
    block: AnyBlock, slot: str | None = None, host: Algorithm | None = None, task: Clinic | None = None
) -> None:
    """Check a block by itself and inside an algorithm.

    Args:
        block: an instance with the arguments to check.
        slot: the slot it goes into; needed for corrections, which fit two.
        host: the algorithm to put it into; needed if the block requires others. None is FedAvg.
        task: what to train; `Clinic(make=...)` for a block that needs a model of its own. None is `clinic(...)`.
    """
    if slot is None:
        homes = [name for name, kind in SLOTS.items() if isinstance(block, kind)]
        demand(len(homes) == 1, f"{type(block).__name__} fits {homes or 'no slot'}: pass slot=")
        slot = homes[0]
    demand(is_dataclass(block), f"{type(block).__name__} must be a dataclass(frozen=True)")
    try:
        hash(block)
    except TypeError as error:
        raise ContractError(f"{type(block).__name__} must be immutable and hashable: {error}") from None
    for place in ("Server", "Client", "Sent", "Up"):
        kinds(getattr(block, place))
    _check_verbs(block, SLOTS[slot])
    filled: dict[str, Any] = {slot: block}
    check_algorithm(replace(host or Algorithm(), **filled), task)


def check_algorithm(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """Check everything the contract promises of an algorithm: the functions below, one by one.

    Args:
        algorithm: the method.
        task: what to train; `Clinic(make=...)` for a method that needs a model of its own. None is `clinic(algorithm)`.
    """
    check_trees(algorithm, task)
    check_inputs(algorithm, task)
    check_wire(algorithm, task)
    check_resume(algorithm, task)
    check_order(algorithm, task)
    check_privacy(algorithm, task)
    check_personal(algorithm, task)
    check_random(algorithm, task)
    check_provisional(algorithm, task)
    check_degenerate(algorithm, task)


def check_trees(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """What blocks keep, send and upload is exactly what they declare."""
    round = play(algorithm, task)
    for block_place, parts in [
        ("Server", round.before.parts),
        ("Server", round.after.parts),
        ("Sent", round.broadcast.parts),
        *(("Client", state.parts) for state in round.states.values()),
        *(("Up", upload.parts) for upload in round.uploads),
    ]:
        declared = {slot: getattr(block, block_place) for slot, block in algorithm.slots()}
        expected = {slot for slot, tree in declared.items() if tree is not None}
        demand(set(parts) == expected, f"{block_place}: parts {sorted(parts)}, declared {sorted(expected)}")
        for slot, tree in parts.items():
            where = f"{slot}.{block_place}"
            demand(type(tree) is declared[slot], f"{where}: got {type(tree).__name__}, declared {declared[slot]}")
            for (name, kind), x in zip(kinds(declared[slot]).items(), tree or (), strict=True):
                demand(_is(kind, x, round.after.params), f"{where}.{name}: declared a {kind}, got {_describe(x)}")


def check_inputs(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """No verb changes what it was given."""
    simulation = simulate(algorithm, task)
    state = simulation.run(2)
    broadcast = server.send(algorithm, state)
    gate = Gate(algorithm, LOCAL, broadcast, range(simulation.task.population))
    total = gate.total()
    for client in (3, 4, 5):
        before = fingerprint(broadcast), fingerprint(state), fingerprints(states_of(simulation))
        kept = {client: dict(held) for client, held in states_of(simulation).items()}
        upload = simulation.worker.visit(client, broadcast, state.accepted.get(client), gate)
        assert upload is not None
        after = fingerprint(broadcast), fingerprint(state), fingerprints(kept)
        demand(before == after, f"training client {client} changed what it had received or kept")
        sent = fingerprint(upload)
        gate.admit(upload, total)
        demand(sent == fingerprint(upload), "adding an upload changed it")
    before_close = fingerprint(state), fingerprint(broadcast), [fingerprint(upload) for upload in total.rule.uploads]
    simulation.close(state, broadcast, total)
    after_close = fingerprint(state), fingerprint(broadcast), [fingerprint(upload) for upload in total.rule.uploads]
    demand(before_close == after_close, "the server step changed the state it started from, or an upload")


def check_wire(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """Everything that travels or is stored comes back bit for bit."""
    round = play(algorithm, task)
    nouns: list[Any] = [round.before, round.after, round.broadcast, *round.uploads, *round.states.values()]
    for noun in nouns:
        back = wire.from_bytes(type(noun), algorithm, wire.to_bytes(noun), len(round.after.params))
        demand(fingerprint(back) == fingerprint(noun), f"{type(noun).__name__} came back from the wire changed")


def check_resume(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """Stopping, writing everything down and going on equals going on, bit for bit."""
    whole = simulate(algorithm, task).run(4)
    first = simulate(algorithm, task)
    stopped = first.run(2)
    size = len(stopped.params)
    second = simulate(algorithm, task)
    for client, held in states_of(first).items():
        states_of(second)[client] = {
            round: wire.from_bytes(ClientState, algorithm, wire.to_bytes(kept), size) for round, kept in held.items()
        }
    state = wire.from_bytes(ServerState, algorithm, wire.to_bytes(stopped), size)
    demand(fingerprint(second.run(2, state)) == fingerprint(whole), "a resumed run differs from an uninterrupted one")


def check_order(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """The order of clients and their grouping into partial sums do not change a bit."""
    round = play(algorithm, task)
    draw = Random(0)  # noqa: S311
    for groups in (1, 2, 3, len(round.uploads)):
        uploads = draw.sample(round.uploads, len(round.uploads))
        gate = Gate(algorithm, LOCAL, round.broadcast, [upload.client for upload in uploads])
        partial = [gate.total() for _ in range(groups)]
        for upload in uploads:
            demand(
                gate.admit(upload, draw.choice(partial)) is None,
                f"an honest upload was refused: {gate.rejections}",
            )
        total = gate.total()
        for part in draw.sample(partial, groups):
            total.merge(part)
        after = round.simulation.close(round.before, round.broadcast, total)
        demand(
            fingerprint(after) == fingerprint(round.after),
            f"another order or grouping ({groups} groups) changed the bits",
        )


def check_privacy(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """Nothing of the private part of a model leaves a client."""
    if type(algorithm.personalization) is Personalization:
        algorithm = replace(algorithm, personalization=Private(HEAD))
    round = play(algorithm, task)
    mask = algorithm.personalization.shared(round.layout)
    if mask is None:
        return
    for upload in round.uploads:
        for name, x in wire.flatten(upload).items():
            if x.shape == mask.shape:
                demand(not bool(x[~mask].any()), f"{name} carries private values")


def check_personal(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """What a client is evaluated with is a model, the same at every look, and looking changes nothing."""
    round = play(algorithm, task)
    simulation, params = round.simulation, round.after.params
    before = fingerprint(round.after), fingerprints(states_of(simulation))
    for client in (0, 1, 3):
        kept = round.states.get(client)
        model = algorithm.personal(params, kept, round.layout)
        demand(_is("vector", model, params), f"personal: expected a model, got {_describe(model)}")
        looks = [_weights(simulation.personal(round.after, client)) for _ in range(2)]
        demand(torch.equal(*looks), f"client {client}'s own model differs from one look to the next")
        demand(bool(torch.isfinite(looks[0]).all()), f"client {client}'s own model is not finite")
    after = fingerprint(round.after), fingerprints(states_of(simulation))
    demand(before == after, "evaluating a client's own model changed what is kept")


def check_random(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """No verb draws from a generator that others use, on a client or on the server."""
    before = _global_generators()
    round = play(algorithm, task)
    round.simulation.personal(round.after, 3)
    demand(before == _global_generators(), "a global random generator was used: draw from run.random(purpose)")


def check_provisional(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """An upload that is not accepted leaves no trace, on the server or on the client."""
    steady, shaken = simulate(algorithm, task), simulate(algorithm, task)
    state = steady.run(1)
    lost = shaken.run(1)
    broadcast = server.send(algorithm, lost)
    gate = Gate(algorithm, LOCAL, broadcast, range(shaken.task.population))
    for client in range(shaken.task.population):
        shaken.worker.visit(client, broadcast, lost.accepted.get(client), gate)
    demand(
        fingerprint(shaken.run(2, lost)) == fingerprint(steady.run(2, state)),
        "a round whose replies were lost changed the rounds after it",
    )


def check_degenerate(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """One example, a zero gradient and no examples at all give finite values."""
    for clients in ([0], [2], [1], [0, 1, 2], list(range(8))):
        simulation = simulate(algorithm, task)
        state = simulation.start()
        for _ in range(3):
            state, record = simulation.round(state, clients)
            failed = [r for r in record.rejections if r.client != 1]
            demand(not failed, f"clients {clients}: {'; '.join(map(str, failed))}")
        for name, x in wire.flatten(state).items():
            demand(bool(torch.isfinite(x.double()).all()), f"clients {clients}: {name} is not finite")


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


def _check_verbs(block: AnyBlock, kind: type[AnyBlock]) -> None:
    """Every verb takes what the base's does."""
    for name in dir(kind):
        verb, own = getattr(kind, name), getattr(type(block), name)
        if isfunction(verb) and isfunction(own) and not name.startswith("_"):
            expected, found = signature(verb), signature(own)
            demand(
                len(found.parameters) == len(expected.parameters),
                f"{type(block).__name__}.{name}{found}: the verb is called as {name}{expected}",
            )


def _global_generators() -> tuple[object, ...]:
    """The states of all generators that a process shares."""
    return bytes(torch.get_rng_state().numpy()), random.getstate(), str(np.random.get_state())


def _weights(module: nn.Module) -> Tensor:
    """All weights of a model."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])
