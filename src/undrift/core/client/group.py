"""A group of clients trained together: every block begins for each, one vectorised loop, every block finishes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Generator, Tensor

from undrift.core.client.vectorised import Rows, descend_together, row_count
from undrift.core.client.visit import ClientError, begin_visit, finish_visit, locate_error
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import AnyBlock
from undrift.core.method.view import End, Start
from undrift.core.model.flat_model import Bound
from undrift.core.model.oracle import Oracle
from undrift.core.records.types import Broadcast, ClientState, Local, Upload
from undrift.core.tasks.task import PerExample, Task


@dataclass(eq=False)
class Member:
    """One client of a group.

    Args:
        client: the client's number.
        examples: how many training examples it has, one at least.
        steps: how many local steps it takes, one at least.
        state: what it kept from its last accepted round; None if it never took part.
        random: gives its generator for a purpose.
        epoch: makes one more epoch of its batches.
        label_counts: counts its examples of each class; None leaves it to the batches.
        reported: where its blocks' reports are written.
    """

    client: int
    examples: int
    steps: int
    state: ClientState | None
    random: Callable[[str], Generator]
    epoch: Callable[[Generator], Iterator[Any]]
    label_counts: Callable[[], Tensor | None] | None = None
    reported: dict[str, float] = field(default_factory=dict)


def train_group(
    algorithm: Algorithm,
    model: Bound,
    task: Task,
    members: Sequence[Member],
    broadcast: Broadcast,
    local: Local,
) -> list[tuple[Upload, ClientState] | ClientError]:
    """Train a group of clients for one round; for each its result, or the error of its training.

    Args:
        algorithm: the method, which `check_together` accepts.
        model: the worker's bound model; its values are overwritten.
        task: the data and the losses.
        members: the clients, `local.together` at most.
        broadcast: what the server sent.
        local: the settings all clients share.
    """
    assert isinstance(task, PerExample)
    model.check()
    model.load(broadcast.params, broadcast.buffers, broadcast.counts)
    blocks = dict(algorithm.slots())
    shared: dict[str, Any] = {"w0": broadcast.params, "layout": model.layout, "round": broadcast.round, "local": local}
    shared["lr"] = local.rate(broadcast.round)
    visits: list[tuple[Member, Oracle, dict[str, Any], dict[str, Any]]] = []
    results: dict[int, tuple[Upload, ClientState] | ClientError] = {}

    def loss(batch: Any) -> Tensor:
        return task.loss(model.module, batch)

    for member in members:
        states: dict[str, Any] = {}
        oracle = Oracle(model, loss, member.random)
        own: dict[str, Any] = {
            "steps": member.steps,
            "examples": member.examples,
            "random": member.random,
            "_epoch": member.epoch,
        }
        view = {**shared, **own, "_oracle": oracle, "_states": states, "_label_counts": member.label_counts}
        kept = member.state or ClientState(algorithm.first(broadcast.params))
        try:
            begin_visit(algorithm, broadcast, kept, Start(**view), states, member.reported)
            visits.append((member, oracle, view, states))
        except Exception as error:
            results[member.client] = locate_error(blocks, error, broadcast.round, member.client, 0)
            results[member.client].__cause__ = error  # type: ignore[union-attr]
            oracle.release()
    if visits:
        begun = [visit[0] for visit in visits]
        counts = [member.steps for member in begun]
        counts += [max(counts)] * (row_count(local) - len(begun))
        parts = chain.from_iterable(tree or () for tree in broadcast.parts.values())
        fields = {**shared, "shared": [broadcast.params, *(x for x in parts if isinstance(x, Tensor))]}
        rows = Rows(model, task.losses, counts, iter(()))
        try:
            rows.batches = stack_batches(task, begun, local)
            trained = descend_together(algorithm, rows, [visit[3] for visit in visits], fields)
        except Exception as error:
            for _, oracle, _, _ in visits:
                oracle.release()
            if len(begun) > 1:  # one that fails takes no other along: alone a client has the same bits
                results |= {x.client: train_group(algorithm, model, task, [x], broadcast, local)[0] for x in begun}
            else:
                results[begun[0].client] = _failed_alone(blocks, error, broadcast.round, begun[0].client, rows.step)
            visits = []
        else:
            moved = trained - broadcast.params
    for i, (member, oracle, view, states) in enumerate(visits):
        oracle.losses = [losses[i] for losses in rows.losses[: member.steps]]
        oracle.total, oracle.step = rows.total[i], member.steps - 1
        oracle.gradients += rows.gradients // max(rows.steps) * member.steps
        try:
            end = End(**view, w=trained[i], delta=moved[i])
            results[member.client] = finish_visit(algorithm, oracle, states, end, member.client, member.reported)
        except Exception as error:
            results[member.client] = locate_error(blocks, error, broadcast.round, member.client, oracle.step)
            results[member.client].__cause__ = error  # type: ignore[union-attr]
        finally:
            oracle.release()
    return [results[member.client] for member in members]


def _failed_alone(blocks: dict[str, AnyBlock], error: Exception, round: int, client: int, step: int) -> ClientError:
    """The error of a client's steps; one of vmap's explains how to train without it."""
    found = locate_error(blocks, error, round, client, step)
    if "vmap" in str(error) or "Batching rule" in str(error):
        found = ClientError(f"{found}; set together to 1")
    found.__cause__ = error
    return found


def stack_batches(task: PerExample, members: Sequence[Member], local: Local) -> Iterator[tuple[Any, Tensor]]:
    """For each step the batches of all rows, padded to one size, and the weights of their examples.

    A short batch is padded by its first example, without weight; a row of no client is that of the first, without any.

    Args:
        task: the data.
        members: the clients, one at least.
        local: gives the number of rows and the batch size.
    """
    size, rows, longest = local.batch_size, row_count(local), max(member.steps for member in members)
    shapes: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    weights = torch.zeros(longest, rows, size)
    plans = []
    for i, member in enumerate(members):
        shape = member.examples, member.steps
        if shape not in shapes:
            shapes[shape] = _padding(local, *shape)
        places, weights[: member.steps, i] = shapes[shape]
        order, passes = member.random("batches"), -(-member.steps // local.epoch_steps(member.examples))
        epochs = [task.order(member.client, order)[places] for _ in range(passes)]
        plans.append(torch.cat(epochs)[: member.steps] if passes > 1 else epochs[0])
    chosen = plans[0].new_zeros(longest, rows, size)
    for i, indices in enumerate(plans):
        chosen[: len(indices), i] = indices
        chosen[len(indices) :, i] = indices[-1]
    chosen[:, len(members) :] = chosen[:, :1]
    steps = zip(chosen, weights.to(chosen.device), strict=True)
    return ((_fold_rows(task.gather(indices.reshape(-1)), rows), shares) for indices, shares in steps)


def _padding(local: Local, examples: int, steps: int) -> tuple[Tensor, Tensor]:
    """Where the padded batches of an epoch find their examples in its order, and the weights of all steps' examples."""
    each, size = local.epoch_steps(examples), local.batch_size
    sizes = local.batch_sizes(examples, min(each, steps))
    counts, places = torch.tensor(sizes), torch.arange(size)
    inside = places < counts[:, None]
    index = torch.where(inside, places, 0) + size * torch.arange(len(sizes))[:, None]
    weights = inside / counts[:, None]
    return index, weights.repeat(-(-steps // each), 1)[:steps]


def _fold_rows(batch: Any, rows: int) -> Any:
    """A batch with an axis for the rows in front of that for the examples."""
    if isinstance(batch, Tensor):
        return (
            batch.view(rows, -1, *batch.shape[1:]) if batch.is_contiguous() else torch.unflatten(batch, 0, (rows, -1))
        )
    if isinstance(batch, dict):
        return {name: _fold_rows(x, rows) for name, x in batch.items()}
    parts = (_fold_rows(x, rows) for x in batch)
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
