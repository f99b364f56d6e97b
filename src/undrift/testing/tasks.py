"""Small tasks on which a method's mathematics can be checked."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.place import Place
from undrift.models import AdaptedLinear, Simplex, Variational, add_cores, open_base


class _Free(nn.Module):
    """Named parameters and nothing else."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_parameter(name, nn.Parameter(value.clone()))


@dataclass(frozen=True)
class Quadratics:
    """Deterministic losses L_i(w) = (w - b_i)^T A_i (w - b_i) / 2 in double precision, the same at every step.

    Args:
        curvatures: one matrix A_i per client.
        optima: one vector b_i per client.
        start: the initial model, as named tensors; w is their concatenation.
        sizes: how many examples each client claims; they set its number of steps.
    """

    curvatures: Sequence[Tensor]
    optima: Sequence[Tensor]
    start: dict[str, Tensor]
    sizes: Sequence[int]

    @property
    def population(self) -> int:
        """How many clients there are."""
        return len(self.sizes)

    def model(self) -> nn.Module:
        """The named tensors at their start."""
        return _Free(self.start)

    def loss(self, model: nn.Module, batch: int) -> Tensor:
        """The loss of the client whose number is the batch."""
        w = torch.cat([p.reshape(-1) for p in model.parameters()])
        away = w - self.optima[batch]
        return away @ self.curvatures[batch] @ away / 2

    def placed(self, place: Place) -> "Quadratics":
        """The same losses at a place."""
        return replace(self, curvatures=place.to(list(self.curvatures)), optima=place.to(list(self.optima)))

    def examples(self, client: int) -> int:
        """How many examples a client claims."""
        return self.sizes[client]

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[int]:
        """The client's number, once for each step of an epoch."""
        for _ in range(-(-self.sizes[client] // size)):
            yield client

    @classmethod
    def scalar(
        cls, curvatures: Sequence[float], optima: Sequence[float], start: float, sizes: Sequence[int]
    ) -> "Quadratics":
        """A problem with one parameter."""
        double = torch.float64
        return cls(
            [torch.tensor([[a]], dtype=double) for a in curvatures],
            [torch.tensor([b], dtype=double) for b in optima],
            {"w": torch.tensor([start], dtype=double)},
            sizes,
        )

    @classmethod
    def random(cls, clients: int = 6, seed: int = 0, sizes: Sequence[int] | None = None) -> "Quadratics":
        """A heterogeneous problem with forty parameters in four tensors, curvatures between 0.2 and about 3."""
        draw = torch.Generator().manual_seed(seed)
        shapes = {"conv_weight": (2, 2, 3, 2), "fc_weight": (3, 4), "norm": (1,), "bias": (3,)}
        size = sum(torch.Size(shape).numel() for shape in shapes.values())

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        factors = [normal(size, size) / size**0.5 for _ in range(clients)]
        return cls(
            [f @ f.T * 0.7 + 0.2 * torch.eye(size, dtype=torch.float64) for f in factors],
            [normal(size) for _ in range(clients)],
            {name: normal(*shape) for name, shape in shapes.items()},
            sizes or [1] * clients,
        )


def _body() -> nn.Module:
    """A convolution and a normalisation with running statistics."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())


def _variational(latent: int, classes: int, samples: int = 2) -> nn.Module:
    """The same body before latent units and a head."""
    return Variational(_body(), 4 * 4 * 4, latent, classes, samples)


def _make_simplex() -> nn.Module:
    """The same body before features of length one and a fixed classifier."""
    return Simplex(_body(), 4 * 4 * 4, 3, 5, 2.0)


def _make_adapted(base: bool = False, heads: int = 0) -> nn.Module:
    """The same body before a layer with an adapter, perhaps with cores, and a head."""
    layers = OrderedDict(body=_body(), layer=AdaptedLinear(nn.Linear(4 * 4 * 4, 5), 2, 2.0), head=nn.Linear(5, 3))
    net = nn.Sequential(layers)
    if heads:
        add_cores(net, heads)
    return open_base(net) if base else net


class _Net(nn.Module):
    """A convolution, a normalisation with running statistics and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _body()
        self.head = nn.Linear(4 * 4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of 6 x 6 images."""
        out: Tensor = self.head(self.body(x))
        return out


@dataclass(frozen=True)
class Clinic:
    """A small classification task whose clients are as odd as clients get.

    Client 0 has one example, client 1 none, client 2 a gradient of zero; the others have a few examples of mostly one
    class.

    Args:
        seed: seed of data and weights.
        dtype: precision of data and weights.
        make: builds the model, which tells three classes or more of (batch, 1, 6, 6) images apart.
    """

    seed: int = 0
    dtype: torch.dtype = torch.float32
    make: Callable[[], nn.Module] = _Net

    sizes = (1, 0, 6, 9, 12, 5, 8, 7)

    @property
    def population(self) -> int:
        """How many clients there are."""
        return len(self.sizes)

    def without_noise(self) -> "Clinic":
        """The same clinic with a model that draws no random numbers, where that is possible."""
        if isinstance(self.make, partial) and self.make.func is _variational:
            return replace(self, make=partial(self.make, samples=0))
        return self

    def model(self) -> nn.Module:
        """A convolution, running statistics and a head named `head`, unless `make` builds another."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return self.make().to(self.dtype)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor, float]) -> Tensor:
        """Cross entropy, times zero for client 2."""
        x, y, scale = batch
        return cross_entropy(model(x), y) * scale

    def examples(self, client: int) -> int:
        """How many examples a client has."""
        return self.sizes[client]

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        """One epoch of a client's data."""
        x, y = self._data(client)
        for chosen in torch.split(torch.randperm(len(y), generator=generator), size):
            yield x[chosen], y[chosen], 0.0 if client == 2 else 1.0

    def label_counts(self, client: int) -> Tensor:
        """How many examples of each of the three classes a client has."""
        return torch.bincount(self._data(client)[1], minlength=3)

    def proxy(self) -> Iterator[Any]:
        """Two batches of no client's data."""
        x, y = self._data(4, shift=500)
        for chosen in torch.split(torch.arange(len(y)), 6):
            yield x[chosen], y[chosen], 1.0

    def _data(self, client: int, shift: int = 0) -> tuple[Tensor, Tensor]:
        """The images of a client and their classes."""
        draw = torch.Generator().manual_seed(self.seed * 1000 + client + shift)
        y = torch.where(torch.rand(self.sizes[client], generator=draw) < 0.8, client % 3, (client + 1) % 3)
        x = torch.randn(len(y), 1, 6, 6, generator=draw, dtype=self.dtype) + y.view(-1, 1, 1, 1)
        return x, y


MODELS: dict[str, Callable[..., nn.Module]] = {
    "variational": _variational,
    "simplex": _make_simplex,
    "adapted": _make_adapted,
    "foldable": partial(_make_adapted, True),
    "cored": partial(_make_adapted, True, 1),
    "headed": partial(_make_adapted, heads=2),
}
"""The clinic's model for each kind that blocks declare to need."""


def clinic(algorithm: Algorithm) -> Clinic:
    """The clinic an algorithm is tried on: with the kind of model that it needs."""
    needs = algorithm.needs
    return Clinic(make=partial(MODELS[needs.model], **needs.arguments)) if needs.model else Clinic()
