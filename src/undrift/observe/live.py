"""The lens during a run: every few rounds, the gradients of a few clients at the new model, one tensor at a time.

The driver measures, so all engines are treated alike. Only rows are written: no client state, random stream or result
changes. The clients and their examples are the same each time, so a change from row to row is a change of the model.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Bound, Layout, layout_of
from undrift.core.model.random import cohort, derive
from undrift.core.records.types import ServerState
from undrift.core.tasks.task import Task
from undrift.engine.round.record import Record
from undrift.engine.worker.job import Job
from undrift.lens import BandConsensus, BandStream, Drift, heterogeneity, sweep
from undrift.lens.spectrum import banded_tensors
from undrift.observe.parts import default_filter, read_filter
from undrift.util.storage.jsonable import jsonable
from undrift.util.storage.metrics import Metrics

LARGE = 1 << 20
"""Models with at least this many parameters are measured in two passes over the clients, one for each half."""

BANDS = 10
"""Bands of the spectrum; a model without a tensor that has so many is measured without them."""

BATCHES = 4
"""Batches of each client from which its heterogeneity is estimated."""


class Live:
    """Measures a run while it is in progress, with the parts that its settings name.

    Args:
        job: the method, the task and the clients' settings.
        path: the file of JSON lines.
        every: measure after every this many rounds; 0 means never.
        clients: how many clients to measure.
        parts: what to measure: "spectrum", "divergence", "heterogeneity".
        model: a bound model to compute with, restored afterwards; None makes one each time.
        filter: of heterogeneity, written as in compositions; None takes the method's own, or a default one.
    """

    def __init__(
        self,
        job: Job,
        path: Path,
        every: int,
        clients: int,
        parts: Sequence[str],
        model: Bound | None = None,
        filter: str | None = None,
    ) -> None:
        self.job, self.rows, self.model = job, Metrics(path, needed=False), model
        self.every, self.count, self.parts = every, clients, parts
        self.filter = read_filter(filter) if filter else None

    @cached_property
    def clients(self) -> list[int]:
        """The clients it measures."""
        return sample_clients(self.job.task, self.count, self.job.seed)

    @cached_property
    def layout(self) -> Layout:
        """The names and shapes of the model's tensors."""
        return layout_of(self.job.task.model()) if self.model is None else self.model.layout

    def rewind(self, round: int) -> None:
        """Drop the rows after this round, because these rounds will be run again."""
        if self.rows.path.exists():
            self.rows.rewind(round)

    def due(self, state: ServerState) -> bool:
        """Whether the state after this round is measured."""
        return self.every > 0 and state.round % self.every == 0

    def after(self, state: ServerState, record: Record) -> dict[str, float]:
        """Measure the state after a round, if it is due, and return how long that took.

        A failure to measure is recorded in the row and never ends a run.
        """
        if not self.due(state):
            return {}
        begun = perf_counter()
        try:
            row = measure_state(self.job, state, self.clients, self.layout, self.parts, self.model, self.filter)
        except (ValueError, TypeError, RuntimeError) as error:
            row = {"skipped": str(error)}
        seconds = round(perf_counter() - begun, 4)
        self.rows.append({"round": state.round, "seconds": seconds, **row})
        return {"lens_seconds": seconds}


def measure_state(
    job: Job,
    state: ServerState,
    clients: Sequence[int],
    layout: Layout,
    parts: Sequence[str] = ("spectrum",),
    model: Bound | None = None,
    filter: Filter | None = None,
) -> dict[str, Any]:
    """What clients' gradients share at a state, from one batch each; one tensor is held at a time.

    Heterogeneity takes a few batches of each client and holds a few vectors. If the spectrum (the model is too
    small for it) or heterogeneity cannot be measured, `skipped` has the reason, and the others are there.

    Args:
        job: the method, the task and the clients' settings.
        state: the server state to measure.
        clients: the clients to measure.
        layout: the names and shapes of the model's tensors.
        parts: "spectrum" is the energy of the clients' mean divided by their mean energy, per band; "divergence" is the
            root mean square distance of clients from their mean, for the whole model (`drift`) and, divided by the
            length of the mean, per layer; "heterogeneity" is the squared norm of the gradient and the variances between
            and within clients, before and after a filter.
        model: a bound model to compute with, restored afterwards; None makes one.
        filter: of heterogeneity; None takes the method's own, or a default one.
    """
    row: dict[str, Any] = {}
    skipped: list[str] = []
    streamed = {"spectrum", "divergence"} & set(parts)
    try:
        banded_tensors(layout, BANDS)
    except ValueError as error:
        skipped += [f"spectrum: {error}"] if "spectrum" in streamed else []
        streamed -= {"spectrum"}
    bands = BANDS if "spectrum" in streamed else 1
    cuts = halves(layout) if streamed else []
    measured = [_measure_tensors(job, state, clients, layout, part, bands, model) for part in cuts]
    if "spectrum" in streamed:
        row["consensus"] = jsonable(_join([consensus for consensus, _ in measured]).overall["ratio"])
    if "divergence" in parts:
        row |= _divergence([drift for _, drift in measured])
    if "heterogeneity" in parts:
        try:
            row["heterogeneity"] = _heterogeneity(job, state, clients, model, filter or default_filter(job.algorithm))
        except (ValueError, TypeError, RuntimeError) as error:
            skipped.append(f"heterogeneity: {error}")
    return row | ({"skipped": "; ".join(skipped)} if skipped else {})


def _heterogeneity(
    job: Job, state: ServerState, clients: Sequence[int], model: Bound | None, filter: Filter
) -> dict[str, Any]:
    """The quantities of convergence theory, from a few batches of each client."""
    samples = BATCHES * job.local.batch_size
    found = heterogeneity(job, state, clients, filter=filter, samples=samples, seed=job.seed, model=model)
    return {"filter": repr(filter), **{name: jsonable(part.as_dict()) for name, part in found.items()}}


def halves(layout: Layout) -> list[slice]:
    """The tensors of a large model in two groups of similar size; those of a small model in one group.

    They also stay together if one group would have less than a tenth of the parameters: two passes would gain little.
    """
    tensors, ends = len(layout.sizes), list(accumulate(layout.sizes))
    cut = min(range(tensors), key=lambda i: abs(2 * ends[i] - layout.size)) + 1
    if layout.size < LARGE or 10 * min(ends[cut - 1], layout.size - ends[cut - 1]) < layout.size:
        return [slice(0, tensors)]
    return [slice(0, cut), slice(cut, tensors)]


def _measure_tensors(
    job: Job, state: ServerState, clients: Sequence[int], layout: Layout, part: slice, bands: int, model: Bound | None
) -> tuple[BandConsensus, Drift]:
    """What clients share in a slice of the tensors; the sums are freed on return."""
    stream = BandStream(Layout(layout.names[part], layout.shapes[part]), bands=bands)

    def begin(client: int) -> Callable[[int, Tensor], None]:
        take = stream.begin(client)
        return lambda i, x: take(i - part.start, x) if part.start <= i < part.stop else None

    sweep(job, state, clients, begin, model)
    return stream.consensus(), stream.drift()


def _join(parts: Sequence[BandConsensus]) -> BandConsensus:
    """The layers of all parts together."""
    energy, shared, variance = (
        torch.cat([getattr(x, name) for x in parts]) for name in ("energy", "shared", "variance")
    )
    return BandConsensus(tuple(layer for x in parts for layer in x.layers), parts[0].clients, energy, shared, variance)


def _divergence(drifts: Sequence[Drift]) -> dict[str, Any]:
    """Distances from the mean, by layer and of the whole model."""
    apart = [x.scatter.clamp(min=0).sqrt() for x in drifts]
    relative = torch.cat([torch.where(d == 0, 0.0, d / x.moved)[:-1] for d, x in zip(apart, drifts, strict=True)])
    drift = torch.stack([x.scatter[-1] for x in drifts]).sum().clamp(min=0).sqrt()
    layers = [layer for x in drifts for layer in x.layers]
    return {"divergence": {"layers": layers, "relative": jsonable(relative)}, "drift": jsonable(drift)}


def sample_clients(task: Task, count: int, seed: int) -> list[int]:
    """This many clients with examples, or all of them if there are fewer; the same at every call.

    Clients are drawn first and their examples are counted then: the cost follows the count, not the population, unless
    most clients have none.
    """
    fixed, size = derive(seed, "lens"), min(count, task.population)
    while True:
        able = [client for client in cohort(fixed, 0, task.population, size) if task.examples(client)]
        if len(able) >= count or size == task.population:
            return [able[i] for i in cohort(fixed, 0, len(able), min(count, len(able)))]
        size = min(2 * size, task.population)
