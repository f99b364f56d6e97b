"""The contract every block and algorithm keeps, as checks that anyone can run on their own.

Each check trains a small model for a few rounds and compares the bits. A breach raises `ContractError`, which names
what was promised, where it was broken and what to do. The checks share one played round.
"""

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from inspect import isfunction, signature
from logging import ERROR, getLogger
from math import isfinite
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from undrift.blocks import Private
from undrift.core.method.algorithm import SLOTS, Algorithm
from undrift.core.method.block import AnyBlock, LocalOptimizer
from undrift.core.method.schedule import Synchronous
from undrift.core.records.types import ClientState, ServerState, kinds
from undrift.core.server import step as server
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.core.server.wire import fingerprint
from undrift.engine.round.threads import use_threads
from undrift.testing.rounds import CLIENTS, LOCAL, demand, fingerprints, play, run, simulate, states_of, visit
from undrift.testing.tasks import Clinic, clinic
from undrift.testing.watch import ContractError, detach_gradients, guard_hooks


def check_hooks(block: AnyBlock, kind: type[AnyBlock]) -> None:
    """Every hook takes what the base's does, and no public method is a misspelt hook, which nothing would call.

    Args:
        block: the block.
        kind: the base class of its slot.
    """
    own = type(block)
    hooks = {name: hook for name in dir(kind) if isfunction(hook := getattr(kind, name)) and name[0] != "_"}
    for name, hook in hooks.items():
        found = getattr(own, name)
        if isfunction(found):
            expected, actual = signature(hook), signature(found)
            demand(
                len(actual.parameters) == len(expected.parameters),
                f"{own.__name__}.{name}{actual}: it is called as {name}{expected}",
            )
    unused = [name for name, hook in hooks.items() if getattr(own, name) is hook]
    for name in dir(own):
        if name[0] != "_" and name not in hooks and isfunction(getattr(own, name)):
            near = get_close_matches(name, unused, n=1, cutoff=0.8)
            demand(
                not near,
                f"{own.__name__}.{name} is no hook and is never called; is {''.join(near)} meant? The name of a helper "
                "begins with an underscore",
            )


def check_reports(algorithm: Algorithm, task: Clinic) -> None:
    """A round in which blocks report equals one in which they do not, and any order of clients gives one report."""
    round = play(algorithm, task)
    reports = []
    for clients in (CLIENTS, CLIENTS[::-1]):
        again = simulate(algorithm, task)
        states_of(again).update({client: dict(held) for client, held in states_of(round.simulation).items()})
        after, record = again.round(round.before, clients)
        demand(
            fingerprint(after) == fingerprint(round.after),
            "a round is another one if its blocks report: what is reported must change nothing",
        )
        reports.append(record.reports)
    demand(reports[0] == reports[1], "what is reported depends on the order of the clients: keep nothing on the block")


HEAD = ("head.*",)


def check_block(
    block: AnyBlock, slot: str | None = None, host: Algorithm | None = None, task: Clinic | None = None
) -> None:
    """Check a block by itself and inside an algorithm, and print what was checked; a breach raises `ContractError`.

    Args:
        block: an instance with the arguments to check.
        slot: the slot it goes into; None takes its home.
        host: the algorithm to put it into; needed if the block needs others. None is FedAvg.
        task: what to train; `Clinic(make=...)` for a block that needs a model of its own. None is `clinic(...)`.
    """
    name = type(block).__name__
    slot = str(slot or getattr(block, "home", ""))
    demand(slot in SLOTS, f"{name} fits no slot: derive it from one of {', '.join(k.__name__ for k in SLOTS.values())}")
    demand(is_dataclass(block), f"{name} must be a dataclass(frozen=True)")
    try:
        hash(block)
    except TypeError as error:
        raise ContractError(f"{name} must be immutable and hashable: {error}; use tuples for lists") from None
    for tree in (block.Server, block.Client, block.Sent, block.Up):
        kinds(tree)
    check_hooks(block, SLOTS[slot])
    filled: dict[str, Any] = {slot: block}
    _run_checks(replace(host or Algorithm(), **filled), task)
    _print_passed(f"{slot}={name}")


def check_algorithm(algorithm: Algorithm, task: Clinic | None = None) -> None:
    """Check everything the contract promises of an algorithm, by the functions below, and print what was checked.

    Args:
        algorithm: the method.
        task: what to train; `Clinic(make=...)` for a method that needs a model of its own. None is `clinic(algorithm)`.
    """
    _run_checks(algorithm, task)
    _print_passed("the algorithm")


def _run_checks(algorithm: Algorithm, task: Clinic | None) -> None:
    """All checks, without the log lines about the clinic's clients that have no examples.

    They take rounds apart, so a method is checked in synchronous ones; a schedule has no part in a visit or a step.
    One thread computes all parts: the last bits depend on the number.
    """
    algorithm = replace(algorithm, schedule=Synchronous())
    task, log = task or clinic(algorithm), getLogger("undrift.core.server.gate")
    level = log.level
    log.setLevel(ERROR)
    try:
        with use_threads(1):
            for check in _checks():
                check(algorithm, task)
    finally:
        log.setLevel(level)


def _checks() -> tuple[Callable[[Algorithm, Clinic], None], ...]:
    """The checks of the contract, in the order in which they run."""
    return (
        check_inputs,
        check_trees,
        check_gradients,
        check_isolation,
        check_wire,
        check_resume,
        check_order,
        check_privacy,
        check_personal,
        check_provisional,
        check_reports,
        check_degenerate,
        check_plain,
    )


def _print_passed(what: str) -> None:
    """Print what was checked, one line each."""
    lines = [f"  {check.__name__.removeprefix('check_'):<12} {check.__doc__}" for check in _checks()]
    print("\n".join([f"{what} keeps the contract; {len(lines)} checks passed:", *lines]))


def check_inputs(algorithm: Algorithm, task: Clinic) -> None:
    """No hook changes what it was given, writes to a view, keeps state on itself or draws from a global generator."""
    quiet = task.without_noise()
    round = play(guard_hooks(algorithm), quiet)
    round.simulation.job.algorithm.personal(round.after.params, round.states.get(3), round.layout)
    plain = play(algorithm, quiet)
    demand(
        fingerprint(round.after) == fingerprint(plain.after),
        "two runs with one seed differ: a block depends on more than its arguments, such as an id, a clock or a set",
    )


def check_trees(algorithm: Algorithm, task: Clinic) -> None:
    """What blocks keep, send and upload is exactly what they declare."""
    round = play(algorithm, task)
    for place, parts in [
        ("Server", round.before.parts),
        ("Server", round.after.parts),
        ("Sent", round.broadcast.parts),
        *(("Client", state.parts) for state in round.states.values()),
        *(("Up", upload.parts) for upload in round.uploads),
    ]:
        declared = {slot: getattr(block, place) for slot, block in algorithm.slots()}
        expected = {slot for slot, tree in declared.items() if tree is not None}
        demand(set(parts) == expected, f"{place}: parts {sorted(parts)}, declared {sorted(expected)}")
        for slot, tree in parts.items():
            where = f"{slot}.{place}"
            demand(type(tree) is declared[slot], f"{where}: got {type(tree).__name__}, declared {declared[slot]}")
            for (name, kind), x in zip(kinds(declared[slot]).items(), tree or (), strict=True):
                demand(_is(kind, x, round.after.params), f"{where}.{name}: declared a {kind}, got {_describe(x)}")


def check_gradients(algorithm: Algorithm, task: Clinic) -> None:
    """A block that gets a new vector for every gradient computes the same bits: it keeps none that is overwritten."""
    whole = fingerprint(play(algorithm, task).before)
    for slot, block in algorithm.slots():
        if algorithm.fills(slot) and slot not in ("aggregation", "server_optimizer", "selection"):
            apart = fingerprint(run(simulate(detach_gradients(algorithm, slot), task), 2))
            demand(
                apart == whole,
                f"{slot}={type(block).__name__} keeps a gradient or a direction that is overwritten later: "
                "clone what you keep",
            )


def check_isolation(algorithm: Algorithm, task: Clinic) -> None:
    """What a client uploads and keeps depends on nothing but its data, its state and the broadcast."""
    round = play(algorithm, task)
    again = simulate(algorithm, task)
    states_of(again).update({client: dict(held) for client, held in states_of(round.simulation).items()})
    gate = Gate(algorithm, LOCAL, round.broadcast, CLIENTS)
    expected = {upload.client: fingerprint(upload) for upload in round.uploads}
    for client in reversed(CLIENTS):
        upload = visit(again, client, round.broadcast, round.before, gate)
        same = fingerprint(upload) == expected[client]
        kept = states_of(again).get(client, {}).get(round.broadcast.round)
        same &= kept is None or fingerprint(kept) == fingerprint(round.states[client])
        demand(
            same,
            f"client {client} uploads or keeps something else when other clients train before it: keep nothing on the "
            "block, its class or its module; return it from begin and finish",
        )


def check_wire(algorithm: Algorithm, task: Clinic) -> None:
    """Everything that travels or is stored comes back bit for bit."""
    round = play(algorithm, task)
    records: list[Any] = [round.before, round.after, round.broadcast, *round.uploads, *round.states.values()]
    for record in records:
        back = wire.from_bytes(type(record), algorithm, wire.to_bytes(record), len(round.after.params))
        demand(fingerprint(back) == fingerprint(record), f"{type(record).__name__} changed when it was serialised")


def check_resume(algorithm: Algorithm, task: Clinic) -> None:
    """Stopping, writing everything down and going on equals going on, bit for bit."""
    first = simulate(algorithm, task)
    stopped = run(first, 2)
    size = len(stopped.params)
    second = simulate(algorithm, task)
    for client, held in states_of(first).items():
        states_of(second)[client] = {
            round: wire.from_bytes(ClientState, algorithm, wire.to_bytes(kept), size) for round, kept in held.items()
        }
    state = wire.from_bytes(ServerState, algorithm, wire.to_bytes(stopped), size)
    whole, resumed = run(first, 1, stopped), run(second, 1, state)
    demand(fingerprint(resumed) == fingerprint(whole), "a resumed run differs from an uninterrupted one")


def check_order(algorithm: Algorithm, task: Clinic) -> None:
    """The order of clients and their grouping into partial sums do not change a bit."""
    round = play(algorithm, task)
    draw = Random(0)  # noqa: S311
    for groups in (1, 3, len(round.uploads)):
        uploads = draw.sample(round.uploads, len(round.uploads))
        gate = Gate(algorithm, LOCAL, round.broadcast, [upload.client for upload in uploads])
        partial = [gate.total() for _ in range(groups)]
        for upload in uploads:
            admitted = gate.admit(upload, draw.choice(partial)) is None
            demand(admitted, f"an honest upload was rejected: {gate.rejections}")
        total = gate.total()
        for part in draw.sample(partial, groups):
            total.merge(part)
        after = round.simulation.close(round.before, round.broadcast, total)
        same = fingerprint(after) == fingerprint(round.after)
        demand(same, f"another order or grouping ({groups} groups) changed the bits: combine uploads in a fixed order")


def check_privacy(algorithm: Algorithm, task: Clinic) -> None:
    """Nothing of the private part of a model leaves a client."""
    if not algorithm.fills("personalization"):
        if algorithm.local_optimizer.Up is not None or algorithm.needs.proxy:
            return  # a private part refuses moments that leave the client, and rules that try whole models
        algorithm = replace(algorithm, personalization=Private(HEAD))
    round = play(algorithm, replace(task, dtype=torch.float64))  # scaled copies are recognised by nine digits
    mask = algorithm.personalization.shared(round.layout)
    if mask is None:
        return
    for upload in round.uploads:
        trained = round.models[upload.client]
        secret = _runs(trained[~mask]) | _runs((trained - round.broadcast.params)[~mask])
        for name, x in wire.flatten(upload).items():
            whole = x.shape == mask.shape
            demand(not (whole and bool(x[~mask].any())), f"{name} carries values at private coordinates: {_LEAK}")
            leaked = name.startswith("parts.") and x.is_floating_point() and secret & _runs(x.flatten())
            demand(not leaked, f"{name} carries values of a client's private part: {_LEAK}")


_LEAK = "upload only what personalization.share() leaves"


def _runs(x: Tensor, length: int = 4) -> set[tuple[float, ...]]:
    """The ratios in all runs of so many different neighbours: what two vectors share only if one is a scaled copy."""
    if len(x) < length:
        return set()
    windows = x.double().unfold(0, length, 1)
    ratios = (windows[:, 1:] / windows[:, :1]).tolist()
    rounded = {tuple(float(f"{ratio:.9g}") for ratio in row) for row in ratios}
    return {row for row in rounded if len({*row, 0.0, 1.0}) == length + 1 and all(map(isfinite, row))}


def check_personal(algorithm: Algorithm, task: Clinic) -> None:
    """What a client is evaluated with is a model, the same at every evaluation, and evaluation changes nothing."""
    round = play(algorithm, task)
    simulation, params = round.simulation, round.after.params
    before = fingerprint(round.after), fingerprints(states_of(simulation))
    for client in (0, 1, 3):
        kept = round.states.get(client)
        model = algorithm.personal(params, kept, round.layout)
        demand(_is("vector", model, params), f"personal: expected a model, got {_describe(model)}")
        own = not torch.equal(model, params)
        demand(algorithm.personalized or not own, "clients have models of their own: declare personalizes = True")
        twice = [_weights(simulation.personal(round.after, client)) for _ in range(2)]
        demand(torch.equal(*twice), f"client {client}'s own model differs from one evaluation to the next")
        demand(bool(torch.isfinite(twice[0]).all()), f"client {client}'s own model is not finite")
    after = fingerprint(round.after), fingerprints(states_of(simulation))
    demand(before == after, "evaluating a client's own model changed what is kept")


def check_provisional(algorithm: Algorithm, task: Clinic) -> None:
    """An upload that is not accepted leaves no trace, on the server or on the client."""
    simulation = simulate(algorithm, task)
    lost = run(simulation, 1)
    broadcast = server.send(algorithm, lost, simulation.setting)
    gate = Gate(algorithm, LOCAL, broadcast, CLIENTS)
    for client in CLIENTS:
        visit(simulation, client, broadcast, lost, gate)
    steady = play(algorithm, task).before
    demand(
        fingerprint(run(simulation, 1, lost)) == fingerprint(steady),
        "a round whose replies were lost changed the rounds after it: change nothing that was kept in place",
    )


def check_degenerate(algorithm: Algorithm, task: Clinic) -> None:
    """One example, a zero gradient and no examples at all give finite values."""
    for clients in ([0], [2], [1], [0, 1, 2], list(range(8))):
        state = run(simulate(algorithm, task), 2, clients=clients)
        for name, x in wire.flatten(state).items():
            demand(bool(torch.isfinite(x.double()).all()), f"clients {clients}: {name} is not finite")


def check_plain(algorithm: Algorithm, task: Clinic) -> None:
    """A local optimizer that declares itself plain is plain SGD, bit for bit."""
    if algorithm.fills("local_optimizer") and algorithm.local_optimizer.plain:
        sgd = replace(algorithm, local_optimizer=LocalOptimizer())
        same = torch.equal(play(algorithm, task).after.params, play(sgd, task).after.params)
        name = type(algorithm.local_optimizer).__name__
        demand(same, f"{name}.plain is true, but its steps are not lr times the gradient: return False from plain")


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


def _weights(module: nn.Module) -> Tensor:
    """All weights of a model."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])
