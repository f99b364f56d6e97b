"""The one server step: what is kept, what is sent, and how the sum of a round changes it."""

from dataclasses import replace
from typing import Any

from undrift.core.algorithm import Algorithm
from undrift.core.oracle import Probe
from undrift.core.reduce import Total
from undrift.core.types import Broadcast, Cohort, Gathered, Local, ServerState
from undrift.core.vector import Bound, Layout


def open_run(algorithm: Algorithm, model: Bound) -> ServerState:
    """The server's state before round 0."""
    params = model.w.detach().clone()
    parts = {slot: block.init_server(params) for slot, block in algorithm.slots() if block.Server is not None}
    return ServerState(0, params, model.buffers.detach().clone(), model.counts.clone(), parts)


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
    *,
    layout: Layout | None = None,
    judge: Probe | None = None,
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
        layout: the names and shapes of the model's tensors; needed if the method gathers.
        judge: losses and gradients on the server's proxy data; needed if the method judges.
    """
    if not total.clients:
        return replace(state, round=state.round + 1)
    cohort = Cohort(len(total.clients), population, state.round, local)
    kept, delta = dict(state.parts), None
    if algorithm.aggregation.gathers:
        gathered = _gathered(algorithm, broadcast, kept.get("aggregation"), cohort, layout, judge)
        delta, kept["aggregation"] = algorithm.aggregation.gather(total.gathered(), gathered)
    summed = total.close(broadcast.params, cohort, delta)

    parts: dict[str, Any] = {}
    for slot, block in algorithm.slots():
        if block.Server is not None:
            parts[slot] = block.receive(kept[slot], summed, summed.parts.get(slot), cohort)

    delta = algorithm.drift.settle(summed.delta, parts.get("drift"))
    delta = algorithm.momentum.settle(delta, parts.get("momentum"))
    params, stepped = algorithm.server_optimizer.step(state.params, delta, parts.get("server_optimizer"))
    if algorithm.server_optimizer.Server is not None:
        parts["server_optimizer"] = stepped

    # Where no client has a weight there is no mean: the statistics stay, else a variance would become zero.
    averaged = not algorithm.keeps_buffers(local) and total.weight() > 0
    return ServerState(
        round=state.round + 1,
        params=params,
        buffers=summed.buffers if averaged else state.buffers,
        counts=summed.counts if averaged else state.counts,
        parts=parts,
        accepted={**state.accepted, **dict.fromkeys(total.clients, state.round)}
        if _remembers(algorithm, local)
        else {},
    )


def _gathered(
    algorithm: Algorithm, broadcast: Broadcast, kept: Any, cohort: Cohort, layout: Layout | None, judge: Probe | None
) -> Gathered:
    """What a gathering rule knows besides the uploads."""
    rule = algorithm.aggregation
    if layout is None:
        raise ValueError(f"aggregation={type(rule).__name__} gathers and needs layout=, for example bind(model).layout")
    if rule.judges and judge is None:
        raise ValueError(f"aggregation={type(rule).__name__} judges models on proxy data and needs judge=; got none")
    return Gathered(broadcast.params, layout, kept, cohort, judge)


def _remembers(algorithm: Algorithm, local: Local) -> bool:
    """Whether clients have a state whose last accepted round the server must know."""
    return algorithm.keeps_buffers(local) or not algorithm.stateless
