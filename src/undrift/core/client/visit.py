"""A client's visit: every block begins, the loop runs, every block finishes, and an upload comes of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from undrift.core.client.examples import make_oracle
from undrift.core.client.loop import descend
from undrift.core.client.torch_errors import advice
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import AnyBlock, Personalization
from undrift.core.method.view import End, Start, Step
from undrift.core.model.flat_model import Bound, Vector
from undrift.core.model.oracle import Oracle
from undrift.core.model.samples import examples_of, mean_of
from undrift.core.records.report import collect
from undrift.core.records.types import Broadcast, ClientState, Local, Tree, Upload


class ClientError(RuntimeError):
    """A client's training failed; the message names round, client, step and block."""


def train(
    algorithm: Algorithm,
    model: Bound,
    loss: Callable[[Any], Tensor],
    batches: Iterable[Any],
    broadcast: Broadcast,
    state: ClientState | None,
    local: Local,
    *,
    client: int,
    examples: int,
    steps: int,
    random: Callable[[str], Generator],
    epoch: Callable[[Generator], Iterator[Any]] | None = None,
    label_counts: Callable[[], Tensor | None] | None = None,
    attributes: Mapping[str, float] | None = None,
    out: Vector | None = None,
    reported: dict[str, float] | None = None,
) -> tuple[Upload, ClientState]:
    """Train one client for one round.

    Args:
        algorithm: the method.
        model: the worker's bound model; its values are overwritten.
        loss: the mean loss of the model on a batch.
        batches: all batches of the round, one per step.
        broadcast: what the server sent.
        state: what the client kept from its last accepted round; None if it never took part.
        local: the settings all clients share.
        client: the client's number.
        examples: how many training examples it has, one at least.
        steps: how many local steps it takes, one at least: its `local.step_count`.
        random: gives the client's generator for a purpose.
        epoch: makes one more epoch of the client's batches, for blocks that read the data themselves.
        label_counts: counts the client's examples of each class; None leaves it to the batches.
        attributes: what is public of the client.
        out: where to write the displacement, for those who do not keep it; None makes a new vector.
        reported: where to write what the blocks report, as "slot.name"; None collects nothing.
    """
    blocks, states = dict(algorithm.slots()), dict[str, Any]()
    w0, state = _load(algorithm, model, broadcast, state)
    oracle = make_oracle(model, loss, random, local)
    common: dict[str, Any] = {
        "w0": w0,
        "layout": model.layout,
        "round": broadcast.round,
        "lr": local.rate(broadcast.round),
        "steps": steps,
        "examples": examples,
        "local": local,
        "random": random,
        "_oracle": oracle,
        "_epoch": None if local.example_clip else epoch,
        "_states": states,
        "_label_counts": label_counts,
        "attributes": attributes or {},
    }

    def share(v: Vector) -> Vector:
        return algorithm.personalization.share(v, model.layout)

    try:
        entry = begin_visit(algorithm, broadcast, state, Start(**common), states, reported)
        if entry is not None:
            model.w.copy_(entry)
        descend(algorithm, oracle, states, Step(**common, w=model.w), batches)
        end = End(**common, w=model.w, delta=share(torch.sub(model.w, w0, out=out)), _share=share)
        return finish_visit(algorithm, oracle, states, end, client, reported)
    except Exception as error:
        raise locate_error(blocks, error, broadcast.round, client, oracle.step, oracle.batch) from error
    finally:
        oracle.release()


def begin_visit(
    algorithm: Algorithm,
    broadcast: Broadcast,
    state: ClientState,
    start: Start,
    states: dict[str, Any],
    reported: dict[str, float] | None,
) -> Vector | None:
    """Every block begins; where the first step is taken, if not at `start.w0`.

    Args:
        algorithm: the method.
        broadcast: what the server sent.
        state: what the client kept.
        start: the view before the first step.
        states: where what the blocks hold is written, by slot.
        reported: where to write what the blocks report; None collects nothing.
    """
    for slot, block in algorithm.slots():
        with _reporting(slot, block, start, reported) as own:
            states[slot] = block.begin(broadcast.parts.get(slot), state.parts.get(slot), own)
    return start._entry[0] if start._entry else None


def finish_visit(
    algorithm: Algorithm,
    oracle: Oracle,
    states: dict[str, Any],
    end: End,
    client: int,
    reported: dict[str, float] | None,
) -> tuple[Upload, ClientState]:
    """What comes of a visit after its last step: every block finishes.

    Args:
        algorithm: the method.
        oracle: the losses and gradients of the visit.
        states: what the blocks hold, by slot.
        end: the view after the last step.
        client: the client's number.
        reported: where to write what the blocks report; None collects nothing.
    """
    blocks, model, ends = dict(algorithm.slots()), oracle.model, dict[str, tuple[Any, Any]]()
    model.check_frozen()
    with _reporting("release", algorithm.release, end, reported) as own:
        released = algorithm.release.release(end.delta, states["release"], own)
    if released is not end.delta:
        end = replace(end, delta=released)
    for slot, block in blocks.items():
        with _reporting(slot, block, end, reported) as own:
            ends[slot] = block.finish(states[slot], own)
    keeps, (buffers, counts) = algorithm.keeps_buffers(end.local), model.statistics()
    uploads = {slot: _share(algorithm, up, model) for slot, (up, _) in ends.items() if blocks[slot].Up is not None}
    kept = {slot: keep for slot, (_, keep) in ends.items() if blocks[slot].Client is not None}
    upload = Upload(
        client=client,
        round=end.round,
        delta=end.delta,
        examples=end.examples,
        steps=end.steps,
        loss=float(oracle.total) / end.steps,
        gradients=oracle.gradients,
        buffers=buffers[:0] if keeps else buffers,
        counts=counts[:0] if keeps else counts,
        parts=uploads,
    )
    return upload, ClientState(kept, buffers, counts) if keeps else ClientState(kept)


def starting_loss(
    algorithm: Algorithm,
    model: Bound,
    loss: Callable[[Any], Tensor],
    batches: Iterable[Any],
    broadcast: Broadcast,
    state: ClientState | None,
    random: Callable[[str], Generator],
) -> float:
    """The mean data loss of the model that a client would start from, in evaluation mode; nothing is trained.

    Args:
        algorithm: the method.
        model: the worker's bound model; its values are overwritten.
        loss: the mean loss of the model on a batch.
        batches: the data, one batch at least.
        broadcast: what the server sent.
        state: what the client kept from its last accepted round; None if it never took part.
        random: gives the client's generator for a purpose.
    """
    _load(algorithm, model, broadcast, state)
    oracle = Oracle(model, loss, random)
    pairs = [(oracle.forward_at(model.w, batch, evaluate=True), examples_of(batch)) for batch in batches]
    return mean_of(pairs)


@dataclass(frozen=True)
class _Scope(Personalization):
    """Only what a block's tuning names moves."""

    block: Personalization[Any, Any, Any, Any, Any] = Personalization()

    def active(self, step: Step) -> Tensor | None:
        """The part that the block tunes."""
        return self.block.active(replace(step, tuning=True))


def tuning_method(algorithm: Algorithm) -> Algorithm:
    """The method that tunes a client's model before it is evaluated: the local optimizer, inside the scope declared."""
    return Algorithm(local_optimizer=algorithm.local_optimizer, personalization=_Scope(algorithm.personalization))


def locate_error(
    blocks: dict[str, AnyBlock], error: Exception, round: int, client: int, step: int, batch: Any = None
) -> ClientError:
    """The error of a visit, with the place where it arose.

    Args:
        blocks: the method's, by slot.
        error: what was raised.
        round: the round.
        client: the client's number.
        step: the local step.
        batch: its batch, if that is known.
    """
    where = f"round {round + 1}, client {client}, step {step}{_place(blocks, error)}"
    return ClientError(f"{where}: {error}{advice(error, batch)}")


def _load(
    algorithm: Algorithm, model: Bound, broadcast: Broadcast, state: ClientState | None
) -> tuple[Vector, ClientState]:
    """Put the start of a round into the worker's model; returns where it starts, and the client's state."""
    state = state or ClientState(algorithm.first(broadcast.params))
    w0 = algorithm.personalization.start(broadcast.params, state.parts.get("personalization"), model.layout)
    model.check()
    model.load(w0, *state.statistics(broadcast.buffers, broadcast.counts))
    return w0, state


ViewT = TypeVar("ViewT", Start, End)


def _reporting(
    slot: str, block: AnyBlock, view: ViewT, reported: dict[str, float] | None
) -> AbstractContextManager[ViewT]:
    """The view for one block, whose reports are written as "slot.name" once its hook has returned."""
    return nullcontext(view) if reported is None or not block.reports else _collecting(slot, block, view, reported)


@contextmanager
def _collecting(slot: str, block: AnyBlock, view: ViewT, reported: dict[str, float]) -> Iterator[ViewT]:
    """The view for a block that reports."""
    named: dict[str, float | Tensor] = {}
    yield replace(view, _reported=named)
    found = collect(f"{slot}={type(block).__name__}", block.reports, named)
    reported.update({f"{slot}.{name}": x for name, x in found.items()})


def _share(algorithm: Algorithm, up: Tree, model: Bound) -> Tree:
    """An upload without its private part."""
    if up is None:
        return None
    whole = (model.layout.size,)
    return type(up)(
        *(
            algorithm.personalization.share(x, model.layout) if isinstance(x, Tensor) and x.shape == whole else x
            for x in up
        )
    )


def _place(blocks: dict[str, AnyBlock], error: BaseException) -> str:
    """The slot, block and hook in which an error arose, or nothing if it arose elsewhere."""
    place = ""
    frame = error.__traceback__
    while frame is not None:
        for slot, block in blocks.items():
            if frame.tb_frame.f_locals.get("self") is block:
                place = f", {slot}={type(block).__name__}.{frame.tb_frame.f_code.co_name}"
        frame = frame.tb_next
    return place
