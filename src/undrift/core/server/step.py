"""The one server step: what is kept, what is sent, and how the sum of a round changes it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import torch

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import Gathered
from undrift.core.model.flat_model import Bound, Layout, Vector
from undrift.core.model.samples import Samples
from undrift.core.records.report import Reported, collect, sound
from undrift.core.records.types import Broadcast, Cohort, Local, ServerState
from undrift.core.server.total import Total

_log = logging.getLogger(__name__)


def open_run(algorithm: Algorithm, model: Bound) -> ServerState:
    """The server's state before round 0."""
    return opened(
        algorithm, ServerState(0, model.w.detach().clone(), model.buffers.detach().clone(), model.counts.clone(), {})
    )


def opened(algorithm: Algorithm, state: ServerState) -> ServerState:
    """A state whose blocks keep what they keep on the server before round 0."""
    if algorithm.unprotected:
        _log.warning(
            "%s does not protect %s, which takes every upload as it is: one faulty client can move the model anywhere",
            f"aggregation={algorithm.aggregation!r}",
            " and ".join(f"{slot}={getattr(algorithm, slot)!r}" for slot in algorithm.unprotected),
        )
    parts = {slot: block.init_server(state.params) for slot, block in algorithm.slots() if block.Server is not None}
    return replace(state, parts=parts)


def send(algorithm: Algorithm, state: ServerState) -> Broadcast:
    """What every client of the next round receives."""
    parts = {slot: block.send(state.parts.get(slot)) for slot, block in algorithm.slots() if block.Sent is not None}
    params = algorithm.server_optimizer.shift(state.params, state.parts.get("server_optimizer"))
    return Broadcast(state.round, params, state.buffers, state.counts, parts)


def close(
    algorithm: Algorithm,
    state: ServerState,
    broadcast: Broadcast,
    total: Total,
    population: int,
    local: Local,
    layout: Layout,
    proxy: Samples | None = None,
    reported: Reported | None = None,
    bound: float | None = None,
) -> ServerState:
    """The state after a round.

    A round without an accepted upload is abandoned: nothing but the round's number changes.

    Args:
        algorithm: the method.
        state: the state before the round.
        broadcast: what was sent.
        total: the sum of the accepted uploads.
        population: how many clients there are in all.
        local: the settings all clients share.
        layout: the names and shapes of the model's tensors.
        proxy: the server's proxy data, for a method that needs them.
        reported: where to write what the blocks report of the round, as "slot.name"; None collects nothing.
        bound: largest norm of the uploads' mean, which corrections and the server optimizer follow; a longer one is
            shortened. None allows any.
    """
    if not total.clients:
        return replace(state, round=state.round + 1)
    cohort = Cohort(len(total.clients), population, state.round, local)
    kept = dict(state.parts)
    gathered = Gathered(broadcast.params, layout, kept.get("aggregation"), cohort, proxy)
    summed, kept["aggregation"] = total.close(gathered)
    if total.weight() == 0 and not bool(summed.delta.any()):  # a rule may have a mean of its own for this case
        _log.warning(
            "round %d: all weights of %r are 0, or too small to be added: the mean of the uploads is taken as zero",
            state.round + 1,
            algorithm.aggregation,
        )
    summed = replace(summed, delta=_shortened(summed.delta, bound, state.round))

    parts: dict[str, Any] = {}
    for slot, block in algorithm.slots():
        if block.Server is not None:
            parts[slot] = block.receive(kept[slot], summed, summed.parts.get(slot), cohort)

    delta = algorithm.drift.settle(summed.delta, parts.get("drift"))
    delta = algorithm.momentum.settle(delta, parts.get("momentum"))
    params, stepped = algorithm.server_optimizer.step(state.params, delta, parts.get("server_optimizer"))
    if algorithm.server_optimizer.Server is not None:
        parts["server_optimizer"] = stepped

    if reported is not None:
        reported.update(_reports(algorithm, gathered, parts))

    # Where no client has a weight there is no mean: the statistics stay, else a variance would become zero.
    averaged = not algorithm.keeps_buffers(local) and total.weight() > 0
    return ServerState(
        round=state.round + 1,
        params=params,
        buffers=summed.buffers.to(state.buffers.dtype) if averaged else state.buffers,
        counts=summed.counts if averaged else state.counts,
        parts=parts,
        accepted={**state.accepted, **dict.fromkeys(total.clients, state.round)}
        if _remembers(algorithm, local)
        else {},
    )


def _shortened(delta: Vector, bound: float | None, round: int) -> Vector:
    """A displacement of the bound's length at most; one that is not finite becomes zero."""
    norm = 0.0 if bound is None else float(torch.linalg.vector_norm(delta, dtype=torch.float64))
    if bound is None or norm <= bound:
        return delta
    _log.warning("round %d: the displacement has norm %.3g and is shortened to the bound, %.3g", round + 1, norm, bound)
    return delta * (bound / norm) if isfinite(norm) else torch.zeros_like(delta)


def _reports(algorithm: Algorithm, gathered: Gathered[Any], parts: Mapping[str, Any]) -> Reported:
    """What the blocks report of a round: the rule while it gathered, and all of their new state."""
    out: Reported = {}
    for slot, block in algorithm.slots():
        where, names = f"{slot}={type(block).__name__}", block.reports
        if names and block.Server is not None:
            values = block.report_server(parts[slot], gathered.cohort)
            out.update({f"{slot}.{name}": x for name, x in collect(f"{where}.report_server", names, values).items()})
        for name, each in gathered._reported.items() if slot == "aggregation" else ():
            plain = each.tolist() if hasattr(each, "tolist") else each  # tensors and arrays, too
            listed = [float(x) for x in plain] if isinstance(plain, Sequence) else [float(plain)]
            collect(f"{where}.gather", names, {name: listed[0] if listed else 0.0})
            kept = [x for x in listed if sound(x)]
            if kept:
                out[f"{slot}.{name}"] = kept if isinstance(plain, Sequence) else kept[0]
    return out


def _remembers(algorithm: Algorithm, local: Local) -> bool:
    """Whether clients have a state whose last accepted round the server must know."""
    return algorithm.keeps_buffers(local) or not algorithm.stateless
