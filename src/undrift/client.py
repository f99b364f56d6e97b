"""The one local loop. Every method runs through `train`; read it first."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor

from undrift.algorithm import Algorithm
from undrift.block import Block
from undrift.types import Broadcast, ClientState, Local, Run, Tree, Upload
from undrift.vector import Bound, Vector


class ClientError(RuntimeError):
    """A client's training failed; the message says in which round, client, step and block."""


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
    random: Callable[[str], Generator],
    out: Vector | None = None,
) -> tuple[Upload, ClientState]:
    """Train one client for one round.

    Args:
        algorithm: the method.
        model: the worker's bound model; its values are overwritten.
        loss: the mean loss of the model on a batch.
        batches: all batches of the round, `local.steps(examples)` of them.
        broadcast: what the server sent.
        state: what the client kept from its last accepted round; None if it never took part.
        local: the settings all clients share.
        client: the client's number.
        examples: how many training examples it has, one at least.
        random: gives the client's generator for a purpose.
        out: where to write the displacement, for those who do not keep it; None makes a new vector.
    """
    if state is None:
        state = first_state(algorithm, broadcast)
    blocks = dict(algorithm.slots())
    w0 = algorithm.personalization.start(broadcast.params, state.parts.get("personalization"), model.layout)
    _load(model, w0, broadcast, state)
    oracle = _Oracle(model, loss)
    run = Run(
        w=model.w,
        w0=w0,
        layout=model.layout,
        lr=local.rate(broadcast.round),
        steps=local.steps(examples),
        examples=examples,
        local=local,
        oracle=oracle,
        random=random,
    )
    try:
        begun = {
            slot: block.begin(broadcast.parts.get(slot), state.parts.get(slot), run) for slot, block in blocks.items()
        }
        descend(algorithm, begun, run, batches, oracle)
        run.delta = algorithm.personalization.share(torch.sub(run.w, w0, out=out), model.layout)
        ends = {slot: block.finish(begun[slot], run) for slot, block in blocks.items()}
    except Exception as error:
        raise ClientError(
            f"round {broadcast.round}, client {client}, step {run.step}{_place(blocks, error)}: {error}"
        ) from error
    uploads = {slot: _share(algorithm, up, model) for slot, (up, _) in ends.items() if blocks[slot].Up is not None}
    kept = {slot: keep for slot, (_, keep) in ends.items() if blocks[slot].Client is not None}
    upload = Upload(
        client=client,
        round=broadcast.round,
        delta=run.delta,
        examples=examples,
        steps=run.steps,
        loss=float(oracle.total) / run.steps,
        buffers=model.buffers.clone() if local.buffers == "average" else model.buffers[:0].clone(),
        counts=model.counts.clone() if local.buffers == "average" else model.counts[:0].clone(),
        parts=uploads,
    )
    return upload, ClientState(kept, model.buffers.clone() if local.buffers == "keep" else None)


def descend(algorithm: Algorithm, begun: dict[str, Any], run: Run, batches: Iterable[Any], oracle: "_Oracle") -> None:
    """All local steps: perturb, filter, clip, correct, decay, move."""
    a, local = algorithm, run.local
    shared = a.personalization.shared(run.layout)
    shared = shared if shared is None else shared.to(run.w.device)
    generator = run.random("filter") if a.spectral != type(a.spectral)() else None

    def inside(new: Vector, old: Vector) -> Vector:
        """Filters and corrections act on what is shared; the private part follows its own gradient."""
        return new if shared is None else torch.where(shared, new, old)

    count = 0
    for count, batch in enumerate(batches, start=1):
        run.step = count - 1
        oracle.next(batch)
        offset = a.perturbation.perturb(begun["perturbation"], run)
        if offset is not None and a.spectral.perturbation is not None:
            offset = inside(a.spectral.perturbation(offset, run.layout, generator), offset)
        grad = a.perturbation.mix(run.gradient(offset), begun["perturbation"], run)
        if a.spectral.gradient is not None:
            grad = inside(a.spectral.gradient(grad, run.layout, generator), grad)
        if local.clip is not None:
            grad = grad.mul_((local.clip / torch.linalg.vector_norm(grad)).clamp(max=1.0))
        own = grad.clone() if shared is not None else grad
        grad = a.drift.correct(grad, begun["drift"], run)
        grad = a.momentum.correct(grad, begun["momentum"], run)
        grad = inside(a.objective.add(grad, begun["objective"], run), own)
        if local.weight_decay:
            grad = grad.add_(run.w, alpha=local.weight_decay)
        run.w.add_(grad, alpha=-run.lr)
    if count != run.steps:
        raise ValueError(f"expected {run.steps} batches for {run.examples} examples, got {count}")


def first_state(algorithm: Algorithm, broadcast: Broadcast) -> ClientState:
    """What a client holds before its first round."""
    return ClientState(
        {slot: block.init_client(broadcast.params) for slot, block in algorithm.slots() if block.Client is not None}
    )


class _Oracle:
    """The data gradient of the current batch at the current weights, and the losses met on the way.

    Running statistics move with the first gradient of a step only.
    """

    def __init__(self, model: Bound, loss: Callable[[Any], Tensor]) -> None:
        self.model, self.loss = model, loss
        self.batch: Any = None
        self.fresh = True
        self.total = torch.zeros((), dtype=model.w.dtype, device=model.w.device)
        self.has_buffers = len(model.buffers) + len(model.counts) > 0

    def next(self, batch: Any) -> None:
        """Go on to a batch."""
        self.batch, self.fresh = batch, True

    def __call__(self, point: Vector) -> Vector:
        """One forward and one backward pass at a point."""
        model = self.model
        saved = None if self.fresh or not self.has_buffers else (model.buffers.clone(), model.counts.clone())
        elsewhere = point is not model.w
        if elsewhere:
            model.place(point)
        try:
            loss = self.loss(self.batch)
            gradient = model.gradient(loss)
        finally:
            if elsewhere:
                model.place(model.w)
        if saved is not None:
            model.buffers.copy_(saved[0])
            model.counts.copy_(saved[1])
        if self.fresh:
            self.total += loss.detach()
        self.fresh = False
        return gradient


def _load(model: Bound, w0: Vector, broadcast: Broadcast, state: ClientState) -> None:
    """Put the start of a round into the worker's model."""
    model.check()
    model.w.copy_(w0)
    model.buffers.copy_(broadcast.buffers if state.buffers is None else state.buffers)
    model.counts.copy_(broadcast.counts)


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


def _place(blocks: dict[str, Block], error: BaseException) -> str:
    """The slot, block and verb in which an error arose, or nothing if it arose elsewhere."""
    place = ""
    frame = error.__traceback__
    while frame is not None:
        for slot, block in blocks.items():
            if frame.tb_frame.f_locals.get("self") is block:
                place = f", {slot}={type(block).__name__}.{frame.tb_frame.f_code.co_name}"
        frame = frame.tb_next
    return place
