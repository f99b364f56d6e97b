"""The lens inside a run: every few rounds, a few clients' gradients at the new model, one vector at a time.

It is the driver that looks, so that every engine is watched alike. Nothing is written but rows: no client's state, no
random stream, no bit of the result. The clients and their examples are the same each time, so that a change from row to
row is one of the model.
"""

from collections.abc import Sequence
from functools import cached_property
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor

from undrift.engine.local import Record
from undrift.engine.random import cohort, derive
from undrift.engine.worker import Job
from undrift.experiment.config import OutputConfig
from undrift.experiment.metrics import Metrics
from undrift.lens import BandStream, Drift, probes
from undrift.task import Task
from undrift.types import ServerState
from undrift.vector import Layout, bind


class Live:
    """Watches a run as its settings ask for.

    Args:
        job: the method, the task and the clients' settings.
        output: how often to look, at how many clients, and for what.
        path: the file of JSON lines.
    """

    def __init__(self, job: Job, output: OutputConfig, path: Path) -> None:
        self.job, self.output, self.rows = job, output, Metrics(path)

    @cached_property
    def clients(self) -> list[int]:
        """At whom it looks."""
        return some(self.job.task, self.output.lens_clients, self.job.seed)

    @cached_property
    def layout(self) -> Layout:
        """The names and shapes of the model's tensors."""
        return bind(self.job.task.model()).layout

    def rewind(self, round: int) -> None:
        """Forget the row of this round and all after it, because they will be run again."""
        if self.rows.path.exists():
            self.rows.rewind(round)

    def after(self, state: ServerState, record: Record) -> dict[str, float]:
        """Look at the state a round ended with, if it is time, and say how long that took.

        What cannot be looked at is told in the row and never ends a run.
        """
        if not self.output.lens_every or state.round % self.output.lens_every:
            return {}
        begun = perf_counter()
        try:
            told = glance(self.job, state, self.clients, self.layout, self.output.lens)
        except (ValueError, TypeError, RuntimeError) as error:
            told = {"skipped": str(error)}
        seconds = round(perf_counter() - begun, 4)
        self.rows.append({"round": record.round, "seconds": seconds, **told})
        return {"lens_seconds": seconds}


def glance(
    job: Job, state: ServerState, clients: Sequence[int], layout: Layout, parts: Sequence[str] = ("spectrum",)
) -> dict[str, Any]:
    """What clients' gradients share at a state, from one batch of each; one vector is held at a time.

    Args:
        job: the method, the task and the clients' settings.
        state: where to look.
        clients: at whom.
        layout: the names and shapes of the model's tensors.
        parts: "spectrum" tells the energy of the clients' mean over their mean energy, band by band; "divergence" the
            root mean square distance of clients from their mean, over the whole model (`drift`) and, over the length
            of the mean, by layer.
    """
    stream = BandStream(layout)
    for client, vector in zip(clients, probes(job, state, clients, samples=job.local.batch_size), strict=True):
        stream.add(client, vector)
    told: dict[str, Any] = {}
    if "spectrum" in parts:
        told["consensus"] = plain(stream.consensus().overall["ratio"])
    if "divergence" in parts:
        told |= _divergence(stream.drift())
    return told


def _divergence(found: Drift) -> dict[str, Any]:
    """Distances from the mean, of which the last is that of the whole model."""
    apart = found.scatter.clamp(min=0).sqrt()
    relative = plain((apart / found.moved)[:-1])
    return {"divergence": {"layers": list(found.layers), "relative": relative}, "drift": plain(apart[-1])}


def some(task: Task, count: int, seed: int) -> list[int]:
    """So many clients that have examples, or all of them if they are fewer; the same at every call."""
    able = [client for client in range(task.population) if task.examples(client)]
    return [able[i] for i in cohort(derive(seed, "lens"), 0, len(able), min(count, len(able)))]


def plain(value: Any) -> Any:
    """Tensors, arrays, tuples and tables as JSON takes them; what is not finite becomes None."""
    if isinstance(value, Tensor | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
