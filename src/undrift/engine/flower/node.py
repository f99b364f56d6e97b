"""How a Flower node executes an order: it trains the clients named, with their states on the node's disk."""

import os
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from undrift.core import wire
from undrift.core.algorithm import Algorithm
from undrift.core.gate import Gate
from undrift.core.types import Broadcast
from undrift.core.wire import WireError
from undrift.engine.flower.records import Answer, Order, decode
from undrift.engine.partial import Partial, Visit
from undrift.engine.worker import Worker

try:
    from flwr.app import ArrayRecord, Context, Message
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error


def serve(worker: Worker, order: Order, message: Message) -> Message:
    """Train the clients of an order; the reply is one client's upload, or the partial sum of several."""
    broadcast = _received(worker, order, message)
    if len(order.clients) > 1:
        tensors, summary = worker.serve(broadcast, order.clients, order.accepted, order.cohort).flatten()
    else:
        tensors, summary = _alone(worker, broadcast, order)
    return Message(Answer(order.round, summary, tensors).content(), reply_to=message)


def answer_losses(worker: Worker, order: Order, message: Message) -> Message:
    """The losses of an order's clients, before a round; `cohort` of the order is the number of batches, 0 for all."""
    found = worker.losses(_received(worker, order, message), order.clients, order.accepted, order.cohort or None)
    tensors = {"losses": torch.tensor([found[client] for client in order.clients], dtype=torch.float64)}
    return Message(Answer(order.round, "", tensors).content(), reply_to=message)


def _received(worker: Worker, order: Order, message: Message) -> Broadcast:
    """What the server sent, if it fits the order and the node's model."""
    model, algorithm = worker.model, worker.job.algorithm
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord):
        raise WireError("there is no array record named 'arrays'")
    broadcast = wire.restore(Broadcast, algorithm, decode(arrays), model.layout.size)
    if broadcast.round != order.round:
        raise WireError(f"the order is for round {order.round}, the model of round {broadcast.round}")
    for name, own in (("params", model.w), ("buffers", model.buffers), ("counts", model.counts)):
        sent: Tensor = getattr(broadcast, name)
        if own.shape != sent.shape or own.dtype != sent.dtype:
            raise WireError(
                f"{name}: the server's are {sent.dtype} {tuple(sent.shape)}, here {own.dtype} {tuple(own.shape)}"
            )
    return broadcast


def _alone(worker: Worker, broadcast: Broadcast, order: Order) -> tuple[dict[str, Tensor], str]:
    """Train one client: its upload is smaller than a sum, and the server validates it itself."""
    job, (client,) = worker.job, order.clients
    gate = Gate(job.algorithm, job.local, broadcast, order.clients, job.bound, cohort=order.cohort, seed=job.seed)
    partial = Partial(gate.total(), rejections=gate.rejections)
    started, reported = perf_counter(), dict[str, float]()
    upload = worker.visit(client, broadcast, order.accepted.get(client), gate, reported=reported)
    worker.failure = None  # the reason is in the rejection
    if upload is not None:
        partial.visits.append(
            Visit(
                client,
                upload.examples,
                upload.loss,
                perf_counter() - started,
                gradients=upload.gradients,
                reports=reported,
            )
        )
    return {} if upload is None else wire.flatten(upload), partial.flatten()[1]


def check_same(order: Order, algorithm: Algorithm) -> None:
    """Raise if this node's method is not the server's."""
    if repr(algorithm) != order.algorithm:
        raise WireError(f"this node runs {algorithm!r}, the server {order.algorithm}; give both the same")


def state_folder(root: str | Path | None, context: Context, run: str) -> Path:
    """The folder of a run's states on this node."""
    given = root or context.node_config.get("state-dir")
    return Path(str(given)) / run if given else _temporary() / run


def _temporary() -> Path:
    """A folder of this user for states that need not survive a reboot."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"undrift-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or (user and folder.stat().st_uid != user):
        raise PermissionError(f"{folder} belongs to another user; set state-dir in the node config")
    return folder
