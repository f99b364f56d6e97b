"""The quantities of convergence theory at one model: the gradient of F, and its variance between and within clients.

Notation: client k has n_k examples and the mean loss f_k; F = sum_k p_k f_k over the measured clients, p_k = n_k / n or
equal; g is the gradient of a batch of B examples of one client, drawn without replacement as in training; S_k^2 is the
variance of the gradients of single examples, sum_i |grad l_i - grad f_k|^2 / (n_k - 1).

    gradient = |grad F|^2
    between  = sum_k p_k |grad f_k - grad F|^2
    within   = sum_k p_k E|g - grad f_k|^2 = sum_k p_k S_k^2 (1/B - 1/n_k)

They add up to the mean squared length of a batch's gradient. M batches of n_1, ..., n_M examples, the last one shorter
perhaps, give the client's mean gradient G_k = sum_b n_b g_b / m with m = sum_b n_b, and the estimate
sum_b n_b |g_b - G_k|^2 / (M - 1) of S_k^2, which is unbiased for any M > 1 and any sizes. If m < n_k, the mean itself
has the variance v_k = S_k^2 (1/m - 1/n_k), which inflates |sum p_k G_k|^2 by sum p_k^2 v_k and the scatter of the G_k
by sum p_k (1 - p_k) v_k: both are subtracted. If m = n_k nothing is: gradient and between are exact.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Self

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Bound, Layout, Vector
from undrift.core.model.random import generator
from undrift.core.records.types import ServerState
from undrift.core.server import step as server
from undrift.engine.round.simulation import Simulation
from undrift.engine.worker.job import Job
from undrift.lens.stream import CHUNK
from undrift.lens.vectors import check_measurable, client_samples, gradients, make_model, model_at

PARTS = ("whole", "kept", "removed")
"""A gradient, what a filter keeps of it, and the rest."""


@dataclass(frozen=True)
class Heterogeneity:
    """Length and variance of clients' gradients at one model, all in squared units of the gradient.

    The numbers are unbiased estimates, so they can be slightly negative if not all examples were used.

    Args:
        clients: how many clients were measured.
        gradient: |grad F|^2.
        between: the variance of clients' gradients around grad F.
        within: the variance of a batch's gradient around that of its client.
    """

    clients: int
    gradient: float
    between: float
    within: float

    @property
    def dissimilarity(self) -> float:
        """Mean squared length of clients' gradients over |grad F|^2 (B^2 of FedProx); 1 if they are all the same."""
        return (self.gradient + self.between) / self.gradient if self.gradient > 0 else nan

    def as_dict(self) -> dict[str, float]:
        """The three quantities and the dissimilarity."""
        names = ("gradient", "between", "within", "dissimilarity")
        return {name: getattr(self, name) for name in names}


class HeterogeneityStream:
    """Gradient, between- and within-client variance from one batch's gradient at a time, before and after a filter.

    It holds two vectors, four with a filter, whatever the number of clients and batches. A filter acts on the gradient
    of every batch, as in training; `removed` is the rest, g - P(g). A linear filter could as well act on the means.

    Args:
        layout: names and shapes of the tensors.
        batch_size: B, the size of a batch in training, which `within` refers to.
        filter: if given, also measure what it keeps and what it removes.
        uniform: weigh clients equally instead of by their examples.
        seed: for filters that draw at random.

    Example:
        >>> stream = HeterogeneityStream(Layout(("w",), ((2,),)), batch_size=1)
        >>> stream.add(0, [(torch.tensor([1.0, 0.0]), 1), (torch.tensor([3.0, 0.0]), 1)], examples=2)
        >>> stream.add(1, [(torch.tensor([0.0, 2.0]), 1), (torch.tensor([0.0, 2.0]), 1)], examples=2)
        >>> stream.result()["whole"]
        Heterogeneity(clients=2, gradient=2.0, between=2.0, within=0.5)
    """

    def __init__(
        self, layout: Layout, batch_size: int, *, filter: Filter | None = None, uniform: bool = False, seed: int = 0
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"HeterogeneityStream: batch_size must be 1 or more, got {batch_size}")
        self.setting = (layout, batch_size, filter, uniform, seed)
        self.clients: set[int] = set()
        self._means = _Mean()
        self._within, self._noise, self._squared_noise = torch.zeros(3, 3, dtype=torch.float64)

    def add(self, client: int, batches: Iterable[tuple[Vector, int]], examples: int) -> None:
        """Add a client.

        Args:
            client: its number.
            batches: the gradient of each batch, which is not kept, and how many examples it has; no example twice.
                They may cover only some of the client's examples, in at least two batches.
            examples: how many examples the client has in all.
        """
        layout, batch_size, filter, uniform, seed = self.setting
        if client in self.clients:
            raise ValueError(f"HeterogeneityStream: client {client} was added before; a client counts once")
        own, count, draw = _Mean(), 0, generator(seed, 0, client, "lens")
        for gradient, size in batches:
            own.add([gradient] if filter is None else [gradient, filter(gradient, layout, draw)], size)
            count += 1
            del gradient  # before the next one is computed
        if not 0 < own.weight <= examples:
            raise ValueError(
                f"HeterogeneityStream: the batches of client {client} must have 1 to {examples} examples, its own, "
                f"got {own.weight:g}"
            )
        if count < 2 and own.weight < examples:
            raise ValueError(
                f"HeterogeneityStream: client {client} has {examples} examples, of which one batch of {own.weight:g} "
                "was given; a variance needs two batches or more, or all examples"
            )
        single = own.scatter / max(count - 1, 1)  # S^2; a client with one batch has no other
        weight = 1 if uniform else examples
        noise = single * (1 / own.weight - 1 / examples)
        self._within += weight * single * (1 / min(batch_size, examples) - 1 / examples)
        self._noise += weight * noise
        self._squared_noise += weight**2 * noise
        self._means.add(own.mean, weight)
        self.clients.add(client)

    def merge(self, other: Self) -> Self:
        """Add another stream's clients to this one; no client may be in both."""
        if other.setting != self.setting:
            raise ValueError("HeterogeneityStream: only streams with the same arguments can be merged")
        if twice := sorted(self.clients & other.clients):
            raise ValueError(f"HeterogeneityStream: client {twice[0]} is in both streams; a client counts once")
        if other.clients:
            scatter = other._means.scatter
            self._means.add(other._means.mean, other._means.weight)
            self._means.scatter += scatter
            self._within += other._within
            self._noise += other._noise
            self._squared_noise += other._squared_noise
            self.clients |= other.clients
        return self

    def result(self) -> dict[str, Heterogeneity]:
        """The quantities of the gradients as they are, `whole`, and with a filter those of `kept` and `removed`."""
        if not self.clients:
            raise ValueError("HeterogeneityStream: no client has been added yet; call add first")
        n = self._means.weight
        noise, squared_noise = self._noise / n, self._squared_noise / n**2
        rows = torch.stack(
            [
                self._means.squares() - squared_noise,
                self._means.scatter / n - (noise - squared_noise),
                self._within / n,
            ],
            dim=1,
        )
        names = PARTS if len(self._means.mean) > 1 else PARTS[:1]
        return {name: Heterogeneity(len(self.clients), *row) for name, row in zip(names, rows.tolist(), strict=False)}


def heterogeneity(
    run: Simulation | Job,
    state: ServerState,
    clients: Sequence[int],
    *,
    filter: Filter | None = None,
    samples: int | None = 1024,
    uniform: bool = False,
    seed: int = 0,
    model: Bound | None = None,
) -> dict[str, Heterogeneity]:
    """|grad F|^2, between- and within-client variance at the model that a state broadcasts, without side effects.

    Args:
        run: the method, the task and the settings, among them the batch size.
        state: the server state whose model is used.
        clients: the clients; F is the mean of their losses.
        filter: if given, also measure what it keeps and what it removes of every batch's gradient.
        samples: at most this many of a client's examples, in whole batches of the training size, two at least; None
            takes all. Numbers from some of the examples are unbiased estimates of those of all.
        uniform: weigh clients equally instead of by their examples.
        seed: for filters that draw at random.
        model: a bound model to compute with, restored afterwards; None makes one.

    Returns:
        `whole` and, with a filter, `kept` and `removed`.
    """
    job = run if isinstance(run, Job) else run.job
    check_measurable(job, clients, "gradient", samples)
    sent = server.send(job.algorithm, state, job.setting)
    model = make_model(job, sent.params) if model is None else model
    point = sent.params.to(model.w.device)
    size = job.local.batch_size
    samples = None if samples is None else max(samples, 2 * size)
    stream = HeterogeneityStream(model.layout, size, filter=filter, uniform=uniform, seed=seed)
    with model_at(model, sent.params):
        for client in clients:
            data = client_samples(job, model, sent, client, samples)
            stream.add(client, gradients(data, point), job.task.examples(client))
    return stream.result()


class _Mean:
    """The weighted mean of vectors and their weighted scatter around it, updated one vector at a time (West, 1979).

    A vector may come with a second one, its filtered self; the scatter is that of both and of their difference.
    """

    def __init__(self) -> None:
        self.mean: list[Vector] = []
        self.weight = 0.0
        self.scatter = torch.zeros(3, dtype=torch.float64)

    def add(self, vectors: Sequence[Vector], weight: float) -> None:
        """Add a vector, or a vector and its filtered self; they are not kept."""
        if not self.mean:
            self.mean = [torch.zeros_like(v) for v in vectors]
        self.weight += weight
        share = weight / self.weight
        squares = torch.zeros(3, dtype=torch.float64)
        for means, parts in zip(_chunks(self.mean), _chunks(vectors), strict=True):
            apart = [x.double() - m.double() for x, m in zip(parts, means, strict=True)]
            squares += _squares(apart)
            for m, difference in zip(means, apart, strict=True):
                m.add_(difference.to(m), alpha=share)
        self.scatter += weight * (1 - share) * squares

    def squares(self) -> Tensor:
        """The squared norms of the means and of their difference."""
        squares = torch.zeros(3, dtype=torch.float64)
        for means in _chunks(self.mean):
            squares += _squares([m.double() for m in means])
        return squares


def _chunks(vectors: Sequence[Vector]) -> Iterable[tuple[Tensor, ...]]:
    """Pieces of all vectors at the same places."""
    return zip(*(torch.split(v, CHUNK) for v in vectors), strict=True)


def _squares(vectors: Sequence[Tensor]) -> Tensor:
    """The squared norms of one vector, or of two and of their difference; what is not there is zero."""
    whole = vectors[0]
    rest = [x for kept in vectors[1:] for x in (kept, whole - kept)]
    return torch.tensor([float(x @ x) for x in (whole, *rest)] + [0.0] * (2 - len(rest)), dtype=torch.float64)
