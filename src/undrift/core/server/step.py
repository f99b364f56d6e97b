"""The one server step: what is kept, what is sent, and how the sum of a round changes it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import torch

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Release
from undrift.core.method.view import ServerView, Setting, Sums
from undrift.core.model.flat_model import Bound, Vector
from undrift.core.model.samples import Samples
from undrift.core.records.report import Reported, collect, sound
from undrift.core.records.types import Broadcast, Local, ServerState
from undrift.core.server.total import Total, add_versions
from undrift.util.overlay import Overlay

_log = logging.getLogger(__name__)


def open_run(algorithm: Algorithm, model: Bound) -> ServerState:
    """The server's state before round 0."""
    return reset_parts(
        algorithm, ServerState(0, model.w.detach().clone(), model.buffers.detach().clone(), model.counts.clone(), {})
    )


def reset_parts(algorithm: Algorithm, state: ServerState) -> ServerState:
    """A state whose blocks keep what they keep on the server before round 0."""
    if algorithm.unprotected:
        _log.warning(
            "%s does not protect %s, which takes every upload as it is: one faulty client can move the model anywhere",
            f"release={algorithm.release!r}" if algorithm.release.guards else f"aggregation={algorithm.aggregation!r}",
            " and ".join(f"{slot}={getattr(algorithm, slot)!r}" for slot in algorithm.unprotected),
        )
    parts = {slot: block.init_server(state.params) for slot, block in algorithm.slots() if block.Server is not None}
    return replace(state, parts=parts)


def send(algorithm: Algorithm, state: ServerState, setting: Setting) -> Broadcast:
    """What every client of the next round receives.

    Args:
        algorithm: the method.
        state: the state before the round.
        setting: what all rounds of the run have in common.
    """

    def view(slot: str) -> ServerView[Any]:
        kept = state.parts.get(slot)
        return ServerView(
            params=state.params, w0=state.params, setting=setting, round=state.round, cohort=0, state=kept
        )

    parts = {slot: block.send(view(slot)) for slot, block in algorithm.slots() if block.Sent is not None}
    params = algorithm.server_optimizer.shift(view("server_optimizer"))
    return Broadcast(state.round, params, state.buffers, state.counts, parts)


def close(
    algorithm: Algorithm,
    state: ServerState,
    setting: Setting,
    versions: Sequence[tuple[Broadcast, Total]],
    proxy: Samples | None = None,
    reported: Reported | None = None,
    bound: float | None = None,
    whole: Total | None = None,
) -> ServerState:
    """The state after a round.

    A round without an accepted upload is abandoned: nothing but the round's number changes.

    Args:
        algorithm: the method.
        state: the state before the round.
        setting: what all rounds of the run have in common.
        versions: what was sent and the sum of the accepted uploads that started from it; a synchronous round has one.
            The newest is the current model, whether or not an upload started from it.
        proxy: the server's proxy data, for a method that needs them.
        reported: where to write what the blocks report of the round, as "slot.name"; None collects nothing.
        bound: largest norm of the uploads' mean, which corrections and the server optimizer follow; a longer one is
            shortened. None allows any.
        whole: the sum over all versions, if it is known: see `add_versions`.
    """
    private = algorithm.release.private
    if private and (len(versions) != 1 or not setting.expected):
        raise ValueError(f"release={algorithm.release!r} takes uploads of one version and a known expected cohort")
    held = [(sent, total) for sent, total in versions if total.clients] or list(versions[:1] if private else ())
    if not held:
        return replace(state, round=state.round + 1)
    whole = add_versions([total for _, total in held]) if whole is None else whole
    kept, dtype = dict(state.parts), state.params.dtype
    cohort = setting.expected if private else len(whole.clients)
    weight = float(cohort) if private else whole.weight()
    newest = max((sent for sent, _ in versions), key=lambda sent: sent.round)
    lag = _mean_lag(newest, held)
    sums: dict[str, Any] = {"weight": weight, **(whole.rule.named() if whole.clients else _no_uploads(state))}
    reports: dict[str, Reported] = {slot: {} for slot, _ in algorithm.slots()}

    def view(slot: str, sums: Mapping[str, Any]) -> ServerView[Any]:
        return ServerView(
            params=state.params,
            w0=newest.params,
            setting=setting,
            round=state.round,
            cohort=cohort,
            state=kept.get(slot),
            lag=lag,
            age=newest.round - min(sent.round for sent, _ in held),
            _sums=sums,
            _reported=reports[slot],
            _proxy=proxy,
            _sent=[(sent.parts.get(slot), len(total.clients)) for sent, total in held],
        )

    parts = whole.parts(dtype) if whole.clients else {}
    if "weighted" in sums and type(algorithm.release).release_sum is not Release.release_sum:
        summed = view("release", sums)
        sums["weighted"] = algorithm.release.release_sum(summed.weighted, summed)
    released = view("release", sums).weighted.clone() if private and algorithm.uses else None
    mean, kept["aggregation"] = whole.rule.close(parts.get("aggregation"), view("aggregation", sums))
    delta = mean.to(dtype)
    del mean  # in double precision, twice as long as the model
    if weight == 0 and not bool(delta.any()):  # a rule may have a mean of its own for this case
        _log.warning(
            "round %d: all weights of %r are 0, or too small to be added: the mean of the uploads is taken as zero",
            state.round + 1,
            algorithm.aggregation,
        )
    delta = _shorten(delta, bound, state.round)
    sums = {"weight": weight, "mean": delta}
    declared = {Sums.DISPLACEMENTS: "displacements", Sums.SLOPES: "slopes"}
    if Sums.DISPLACEMENTS in algorithm.uses:
        sums["displacements"] = whole.displacements(dtype) if released is None else released.to(dtype)
    if Sums.SLOPES in algorithm.uses:
        # Displacements are zero on a private part, where the decay is none of the shared model's either.
        starts = [algorithm.personalization.share(sent.params, setting.layout) for sent, _ in held]
        slopes = [total.slopes(start, released, cohort) for (_, total), start in zip(held, starts, strict=True)]
        sums["slopes"] = slopes[0] if len(slopes) == 1 else torch.stack(slopes).sum(dim=0)

    new: dict[str, Any] = {}
    for slot, block in algorithm.slots():
        own = {name: x for name, x in sums.items() if name not in declared.values()}
        own |= {name: sums[name] for one, name in declared.items() if one in block.uses}
        delta, after = block.receive(delta, parts.get(slot), view(slot, own))
        if block.Server is not None:
            new[slot] = after
    if reported is not None:
        reported.update(_collect_reports(algorithm, reports))

    # Where no client has a weight there is no mean: the statistics stay, else a variance would become zero.
    averaged = not algorithm.keeps_buffers(setting.local) and whole.counts is not None and whole.weight() > 0
    accepted = {client: total.version for _, total in held for client in total.clients}
    return ServerState(
        round=state.round + 1,
        params=state.params + delta,
        buffers=whole.buffers().to(state.buffers.dtype) if averaged else state.buffers,
        counts=whole.counts if averaged and whole.counts is not None else state.counts,
        parts=new,
        accepted=Overlay.of(state.accepted).updated(accepted) if remembers(algorithm, setting.local) else {},
    )


def check_private(algorithm: Algorithm, local: Local, model: Bound, expected: int) -> None:
    """Refuse settings under which a private release would not cover what leaves the clients.

    Args:
        algorithm: a method with a private release.
        local: the settings all clients share.
        model: the task's model.
        expected: how many clients a round has on average; 0 in a deployment, whose server has no noise of its own.
    """
    why = ""
    if not expected:
        why = "noise from a run's seed protects in simulations only; train with undrift.Simulation or undrift run"
    elif model.buffers.numel() and not algorithm.keeps_buffers(local):
        why = 'the model\'s running statistics would be averaged without noise; set buffers = "keep" in local'
    elif Sums.SLOPES in algorithm.uses and (not isinstance(local.steps, int) or local.deadline is not None):
        why = (
            "a block reads slopes, which follow from the noisy sum if all clients take equally many steps; set steps, "
            "and no deadline"
        )
    if why:
        raise ValueError(f"release={algorithm.release!r}: {why}")


def _no_uploads(state: ServerState) -> dict[str, Any]:
    """The sums of a private round in which no client took part: the noise alone is released."""
    return {"weighted": torch.zeros_like(state.params, dtype=torch.float64)}


def _mean_lag(newest: Broadcast, held: Sequence[tuple[Broadcast, Total]]) -> Vector | None:
    """The mean over uploads of the difference between the model that each started from and the newest one."""
    older = [(sent.params - newest.params, len(total.clients)) for sent, total in held if sent.round < newest.round]
    if not older:
        return None
    lag = torch.stack([count * difference for difference, count in older]).sum(dim=0)
    return lag / sum(len(total.clients) for _, total in held)


def _shorten(delta: Vector, bound: float | None, round: int) -> Vector:
    """A displacement of the bound's length at most; one that is not finite becomes zero."""
    norm = 0.0 if bound is None else float(torch.linalg.vector_norm(delta, dtype=torch.float64))
    if bound is None or norm <= bound:
        return delta
    _log.warning("round %d: the displacement has norm %.3g and is shortened to the bound, %.3g", round + 1, norm, bound)
    return delta * (bound / norm) if isfinite(norm) else torch.zeros_like(delta)


def _collect_reports(algorithm: Algorithm, reports: Mapping[str, Reported]) -> Reported:
    """What the blocks report of a round, as "slot.name": one number, or several."""
    out: Reported = {}
    for slot, block in algorithm.slots():
        where = f"{slot}={type(block).__name__}"
        for name, each in reports[slot].items():
            plain = each.tolist() if hasattr(each, "tolist") else each  # tensors and arrays, too
            listed = [float(x) for x in plain] if isinstance(plain, Sequence) else [float(plain)]
            collect(where, block.reports, {name: listed[0] if listed else 0.0})
            kept = [x for x in listed if sound(x)]
            if kept:
                out[f"{slot}.{name}"] = kept if isinstance(plain, Sequence) else kept[0]
    return out


def remembers(algorithm: Algorithm, local: Local) -> bool:
    """Whether clients have a state whose last accepted round the server must know.

    Args:
        algorithm: the method.
        local: the settings all clients share.
    """
    return algorithm.keeps_buffers(local) or not algorithm.stateless
