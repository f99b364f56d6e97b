"""The Flower node: a ClientApp around the resident worker, and helpers for a custom train function.

    app = client_app(Job(make("scaffold"), task))

or, with a custom train function and one client per node:

    app = ClientApp()
    host(app)

    @app.train()
    def train(message, context):
        visit = open_visit(message, context, make("scaffold"))
        return visit.train(model, loss, batches, examples)

The method on the node must be the server's; all training settings come from the server. Clients' states are stored on
the node's disk, in `state-dir` of its node config, so that they survive the process that trained them.

The text of an exception may quote a client's data. It stays in the node's log: the server gets its type and a number
to find it by, unless the node config has `share-errors=true`.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from torch import Generator, Tensor, nn

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.part_vector import Part, find_part
from undrift.core.model.random import generator
from undrift.core.records.types import Broadcast, Local
from undrift.core.server import wire
from undrift.core.server.wire import WireError
from undrift.data.arrays.dataset import Dataset
from undrift.engine.flower.node.noise import check_masked, own_noise
from undrift.engine.flower.node.received import keep, keeps_models, patch
from undrift.engine.flower.node.secure_node import answer_step, check_least, check_plain, is_secure, mask_partial
from undrift.engine.flower.records import (
    LOSSES,
    Answer,
    Order,
    claim,
    decode,
    read_offer,
    read_population,
    read_withdrawn,
    refusal,
)
from undrift.engine.flower.secure_records import SECURE
from undrift.engine.flower.versions import explain_refusal, find_newer
from undrift.engine.stores.store import StoreError, delete_states
from undrift.engine.worker.device import resolve
from undrift.engine.worker.job import Job
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.engine.worker.worker import Worker
from undrift.util.storage.heads import keep_head

Hosted: TypeAlias = Iterable[int] | Callable[[Context], Iterable[int]] | None
"""The clients of a node, or a function that returns them; None takes every num-partitions-th from partition-id on."""

Epoch: TypeAlias = Callable[[Generator], Iterable[Any]]
"""One epoch of batches, shuffled by the generator."""

Answering: TypeAlias = Callable[[Message, Context], Message]
"""A function of a ClientApp."""

_log = logging.getLogger("flwr")  # Flower shows what is logged here
_RESIDENT = 4  # workers kept per process: in a simulation, one process serves many nodes
_workers: dict[tuple[object, ...], Worker] = {}


def client_app(
    job: Job | Callable[[Context], Job],
    clients: Hosted = None,
    root: str | Path | None = None,
    *,
    threads: int | None = 1,
) -> ClientApp:
    """A ClientApp that trains the clients of its node with a resident worker.

    Args:
        job: the method and the task, or a function that creates them on first use, so that a node loads only its own
            data; `local`, `seed` and `bound` come from the server. It trains on `device` of the node config, if that
            is set, else on the job's.
        clients: the clients that this node hosts.
        root: folder for the clients' states; None takes `state-dir` of the node config, or a temporary folder.
        threads: torch threads; one by default, so that all nodes compute the same bits. None does not change them.
    """

    def open_job(context: Context) -> Job:
        return _deepen(_check_table(job(context))) if callable(job) else job

    given = open_job if callable(job) else _deepen(_check_table(job))
    return build_app(given, partial(state_folder, root), clients, threads, shares_errors)


def _deepen(job: Job) -> Job:
    """A job that keeps states for its depth in rounds, if a schedule stores several of a client in a round."""
    return replace(job, depth=job.depth * job.algorithm.schedule.visits(0))


def _check_table(job: Job) -> Job:
    """The job; raises if its table was prepared from the rows of this node alone."""
    data = getattr(job.task, "dataset", None)
    if isinstance(data, Dataset) and data.columns and data.statistics != "given":
        raise WireError(
            "this node's table was prepared from its own rows, so categories, classes and scaling differ from those of "
            "other nodes: call prepare_tables on the server and host_table here, then load the table with "
            "prepared=prepared_file(context, run)"
        )
    return job


def build_app(
    job: Job | Callable[[Context], Job],
    folder: Callable[[Context, str], Path],
    clients: Hosted,
    threads: int | None,
    shares: Callable[[Context], bool],
) -> ClientApp:
    """`client_app`, with functions of a context: the state folder of a run, and whether texts of errors are sent."""
    app = ClientApp()
    _answer_queries(app, clients, folder, several=True)

    @app.train()
    @guard(shares)
    def train(message: Message, context: Context) -> Message:
        order = Order.read(message.content)
        worker = open_worker(order, context)
        if not is_secure(message):
            check_plain(context)
            return serve(worker, order, message)
        broadcast, release = _read_broadcast(worker, order, message), worker.job.algorithm.release
        check_least(release.least, context)
        with own_noise(worker, folder(context, order.run) / f"noise-{context.node_id}", order.round):
            found = worker.serve(broadcast, order.clients, order.accepted, order.cohort)
        return mask_partial(found, broadcast, order, message, context)

    @app.query(SECURE)
    @guard(shares)
    def step(message: Message, context: Context) -> Message:
        return answer_step(message, context)

    @app.query(LOSSES)
    @guard(shares)
    def losses(message: Message, context: Context) -> Message:
        check_plain(context)
        order = Order.read(message.content)
        return answer_losses(open_worker(order, context), order, message)

    def open_worker(order: Order, context: Context) -> Worker:
        own = folder(context, order.run)
        note_head(own, order)
        worker = _resident_worker(job, order, context, own, threads)
        worker.describe = str if shares(context) else keep_text
        return worker

    return app


def shares_errors(context: Context) -> bool:
    """Whether the node's operator allows the texts of exceptions to be sent to the server."""
    return context.node_config.get("share-errors") is True


def keep_text(error: Exception) -> str:
    """What the server gets of an exception: its type, and the number under which its text is in this node's log."""
    if isinstance(error, StoreError):  # Undrift's own: a client's number and a file
        return str(error)
    number, cause = uuid4().hex[:12], error.__cause__ or error
    _log.error("error %s: %s", number, error, exc_info=error)
    known = f" ({os.strerror(cause.errno)})" if isinstance(cause, OSError) and cause.errno else ""  # not its own text
    return f"{type(cause).__name__}{known}; its text is in the node's log as error {number}"


def guard(shares: Callable[[Context], bool]) -> Callable[[Answering], Answering]:
    """Makes a function of a ClientApp refuse an order that it cannot follow; other errors pass if they are shared."""

    def guard(function: Answering) -> Answering:
        @wraps(function)
        def answer(message: Message, context: Context) -> Message:
            try:
                return function(message, context)
            except WireError as error:
                why = str(error)
            except Exception as error:
                if shares(context):
                    raise
                why = keep_text(error)
            return Message(refusal(why, message.content), reply_to=message)

        return answer

    return guard


def host(app: ClientApp, clients: Hosted = None, state_dir: str | Path | None = None) -> None:
    """Make an app with a train function of its own answer the server's question which client its node hosts.

    Args:
        app: the app.
        clients: the client that this node hosts, as a list of one.
        state_dir: that of `open_visit`.
    """
    _answer_queries(app, clients, partial(state_folder, state_dir), several=False)


def _answer_queries(app: ClientApp, clients: Hosted, folder: Callable[[Context, str], Path], *, several: bool) -> None:
    """Make an app report its clients, and delete the states of those that have left the run.

    A node that cannot train several clients refuses a claim to them.
    """

    @app.query()
    @guard(shares_errors)
    def query(message: Message, context: Context) -> Message:
        own = _clients_of(clients, context, read_population(message.content))
        own = own if isinstance(own, range) else list(own)
        if len(own) > 1 and not several:
            nodes = context.node_config.get("num-partitions", "the number of nodes")
            return Message(
                refusal(
                    f"it would host {len(own)} clients, and open_visit trains one per node: "
                    f"set population={nodes} of the strategy, or use client_app(job) on the nodes",
                    message.content,
                ),
                reply_to=message,
            )
        # Flower has no public list of an app's functions; without it the server does not warn
        functions = getattr(app, "_registered_funcs", ())
        evaluates = any(name.startswith("evaluate.") for name in functions)
        run, left = read_withdrawn(message.content)
        forgotten = [client for client in left if client in own]
        for client in forgotten:
            found = delete_states(folder(context, run), client)
            _log.info("client %d has left run %s: %d states deleted", client, run, found)
        version = read_offer(message.content)
        return Message(claim(own, evaluates=evaluates, forgotten=forgotten, version=version), reply_to=message)


@dataclass(frozen=True, eq=False)
class OpenVisit:
    """One client's part in one round, in a custom train function; `open_visit` creates it.

    Args:
        order: the server's order.
        algorithm: the method.
        message: the server's message.
        folder: the folder of the run's states on this node.
        share_errors: whether the text of an exception in training is sent to the server.
    """

    order: Order
    algorithm: Algorithm
    message: Message
    folder: Path
    share_errors: bool = False

    @property
    def round(self) -> int:
        """The round, from 0."""
        return self.order.round

    @property
    def client(self) -> int:
        """The client's number."""
        return self.order.clients[0]

    @property
    def local(self) -> Local:
        """The settings all clients share."""
        return self.order.local

    @property
    def config(self) -> ConfigRecord:
        """The train config that was given to the strategy's `start`."""
        record = self.message.content.get("config")
        return record if isinstance(record, ConfigRecord) else ConfigRecord()

    def steps(self, examples: int) -> int:
        """How many local steps the client takes in this round with so many training examples."""
        return self.local.step_count(examples, self.client, self.round, self._seed)

    def generator(self, purpose: str) -> Generator:
        """The client's random generator of this round for a purpose, for example augmentation."""
        return generator(self._seed, self.round, self.client, purpose)

    @property
    def _seed(self) -> int:
        """The seed of this task in the run."""
        return self.order.timing.seed(self.order.seed)

    def train(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        batches: Iterable[Any] | Epoch,
        examples: int,
    ) -> Message:
        """Train the client with the method and return the reply; the model then has the trained values.

        Args:
            model: a model with the server's architecture, on the device to train on; its values are overwritten.
            loss: the mean loss of (model, batch).
            batches: all `steps(examples)` batches of the round, or a function that returns one epoch.
            examples: how many training examples the client has.
        """
        task = _OwnTask(self.client, model, loss, batches, examples)
        place = next((p.device for p in model.parameters()), "cpu")
        job = Job(self.algorithm, task, self.local, self.order.seed, self.order.bound, device=str(place))
        worker = Worker.on_disk(job, self.folder)
        worker.describe = str if self.share_errors else keep_text
        try:
            return serve(worker, self.order, self.message)
        except WireError as error:
            return Message(refusal(str(error), self.message.content), reply_to=self.message)


def open_visit(
    message: Message, context: Context, algorithm: Algorithm, state_dir: str | Path | None = None
) -> OpenVisit:
    """Read the server's order for the only client on this node.

    Args:
        message: the message of the train function.
        context: its context.
        algorithm: the method, the same as the server's.
        state_dir: folder for the client's state; None takes `state-dir` of the node config, or a temporary folder.
    """
    check_plain(context)
    order = Order.read(message.content)
    check_method(order, algorithm)
    if len(order.clients) > 1:
        raise WireError(
            f"this node got an order for {len(order.clients)} clients; a node that hosts many needs client_app"
        )
    folder = state_folder(state_dir, context, order.run)
    note_head(folder, order)
    return OpenVisit(order, algorithm, message, folder, shares_errors(context))


def serve(worker: Worker, order: Order, message: Message) -> Message:
    """Train the clients of an order; the reply is one client's upload, or the partial sum of several."""
    check_masked(worker.job.algorithm)
    broadcast = _read_broadcast(worker, order, message)
    method, layout = worker.job.algorithm, worker.model.layout
    part = find_part(method.personalization, layout, order.round, up=True) if order.short else None
    if len(order.clients) > 1:
        found = worker.serve(broadcast, order.clients, order.accepted, order.cohort, order.timing)
        tensors, summary = found.flatten(part=part)
    else:
        tensors, summary = _train_alone(worker, broadcast, order, part)
    path = _kept_model(worker, message) if order.short and keeps_models(method, layout, order.round) else None
    holds = path is not None and keep(path, broadcast.params)
    return Message(Answer(order.round, summary, tensors, holds).content(order.version), reply_to=message)


def _kept_model(worker: Worker, message: Message) -> Path | None:
    """The file of the model that this node received last; None without a folder."""
    folder = getattr(worker.store, "root", None)
    return folder / f"model-{message.metadata.dst_node_id}" if isinstance(folder, Path) else None


def answer_losses(worker: Worker, order: Order, message: Message) -> Message:
    """The losses of an order's clients, before a round; `cohort` of the order is the number of batches, 0 for all."""
    check_masked(worker.job.algorithm)
    found = worker.losses(_read_broadcast(worker, order, message), order.clients, order.accepted, order.cohort or None)
    tensors = {"losses": torch.tensor([found[client] for client in order.clients], dtype=torch.float64)}
    return Message(Answer(order.round, "", tensors).content(order.version), reply_to=message)


def _read_broadcast(worker: Worker, order: Order, message: Message) -> Broadcast:
    """The server's broadcast in a message; raises if it does not fit the order or the node's model."""
    model, algorithm = worker.model, worker.job.algorithm
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord):
        raise WireError("there is no array record named 'arrays'")
    tensors, part = decode(arrays), None
    if order.changed is not None:
        part = find_part(algorithm.personalization, model.layout, order.round, up=False)
        path, pieces = _kept_model(worker, message) or Path(), tensors.get("params", model.w[:0])
        tensors["params"] = patch(path, model.layout, order.changed, pieces, order.digest)
    broadcast = wire.restore(Broadcast, algorithm, tensors, model.layout.size, part)
    if broadcast.round != order.round:
        raise WireError(f"the order is for round {order.round}, the model of round {broadcast.round}")
    for name, own in (("params", model.w), ("buffers", model.buffers), ("counts", model.counts)):
        sent: Tensor = getattr(broadcast, name)
        if own.shape != sent.shape or own.dtype != sent.dtype:
            raise WireError(
                f"{name}: the server's are {sent.dtype} {tuple(sent.shape)}, here {own.dtype} {tuple(own.shape)}"
            )
    return broadcast


def _train_alone(
    worker: Worker, broadcast: Broadcast, order: Order, part: Part | None
) -> tuple[dict[str, Tensor], str]:
    """Train one client: its upload is smaller than a sum, and the server validates it itself."""
    (client,) = order.clients
    gate = worker.job.gate(broadcast, order.clients, order.cohort, order.timing)
    outcome = Partial(gate.total(), rejections=gate.rejections)
    trained = worker.train_client(client, broadcast, order.accepted.get(client), gate, order.timing)
    worker.failure = None  # the reason is in the rejection
    if trained is None:
        return {}, outcome.flatten()[1]
    upload = trained.upload
    visit = Visit(client, upload.examples, upload.loss, trained.seconds, 0.0, 0.0, upload.gradients, trained.reported)
    outcome.visits.append(visit)
    return wire.flatten_short(upload, worker.job.algorithm, part), outcome.flatten()[1]


def note_head(folder: Path, order: Order) -> None:
    """Keep the head of the server's log that an order has, and warn if the server's run was put back."""
    if order.head is not None and (warning := keep_head(folder, order.round + 1, order.head)):
        _log.warning("%s", warning)


def check_method(order: Order, algorithm: Algorithm) -> None:
    """Raise if this node's method is not the server's, or if an older server cannot read its uploads."""
    if repr(algorithm) != order.algorithm:
        raise WireError(f"this node runs {algorithm!r}, the server {order.algorithm}; give both the same")
    if what := find_newer(order.version, algorithm, order.local):
        raise WireError(explain_refusal(order.version, what))


def state_folder(root: str | Path | None, context: Context, run: str) -> Path:
    """The folder of a run's states on this node."""
    given = root or context.node_config.get("state-dir")
    return Path(str(given)) / run if given else _temporary_folder() / run


def _temporary_folder() -> Path:
    """A folder of this user for states that need not survive a reboot."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"undrift-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or (user and folder.stat().st_uid != user):
        raise PermissionError(f"{folder} belongs to another user; set state-dir in the node config")
    return folder


class _OwnTask:
    """The model and the data of one client, as a task."""

    def __init__(
        self,
        client: int,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        batches: Iterable[Any] | Epoch,
        examples: int,
    ) -> None:
        self.population = client + 1
        self.module, self.criterion, self.count = model, loss, examples
        # With all batches given at once, the first epoch takes them all and the others are empty.
        self.once: Iterator[Any] = iter(()) if callable(batches) else iter(batches)
        self.epoch = batches if callable(batches) else None
        self.reads_once = self.epoch is None

    def model(self) -> nn.Module:
        return self.module

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.criterion(model, batch)

    def examples(self, client: int) -> int:
        return self.count

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        return iter(self.epoch(generator)) if self.epoch is not None else self.once


def _resident_worker(
    job: Job | Callable[[Context], Job],
    order: Order,
    context: Context,
    folder: Path,
    threads: int | None,
) -> Worker:
    """The worker of a run and a node, created on first use; the last few are kept."""
    partition = str(sorted(context.node_config.items())) if callable(job) else ""
    key = (context.run_id, folder, order.local, order.seed, order.algorithm, partition)
    if key not in _workers:
        made = job(context) if callable(job) else job
        check_method(order, made.algorithm)
        if threads is not None:
            torch.set_num_threads(threads)
        while len(_workers) >= _RESIDENT:
            del _workers[next(iter(_workers))]
        device = resolve(str(context.node_config.get("device", made.device)))
        ordered = replace(made, local=order.local, seed=order.seed, device=device)
        _workers[key] = Worker.on_disk(ordered, folder)
    worker = _workers[key]
    worker.job = replace(worker.job, bound=order.bound)  # it may differ in every round
    return worker


def _clients_of(clients: Hosted, context: Context, population: int) -> Iterable[int]:
    """The clients that this node hosts."""
    if clients is not None:
        return clients(context) if callable(clients) else clients
    config = context.node_config
    if "partition-id" not in config or "num-partitions" not in config:
        raise ValueError(
            "no clients for this node: set partition-id and num-partitions in the node config, or clients="
        )
    return range(int(config["partition-id"]), population, int(config["num-partitions"]))
