"""Every algorithm equals its slow oracle, which was written from the sheets without looking at the library."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oracle import filters as slow
from oracle import methods
from support.rounds import View, close, flat, part_of, path, spy, watch
from undrift.algorithms import ALGORITHMS, make
from undrift.blocks import (
    Filter,
    Uniform,
    clip_coordinates,
    gaussian,
    gd,
    high_pass,
    high_pass_2d,
    lap_d,
    low_pass,
    moving_average,
    random_stop,
    rescale,
)
from undrift.blocks.spectral.filter import _shuffle
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import Sums
from undrift.core.model.flat_model import Layout
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task
from undrift.core.tasks.tensor_task import TensorTask
from undrift.testing import Quadratics


@dataclass(frozen=True)
class Case:
    """An algorithm with its arguments, and the oracle's name and arguments for the same."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    renamed: dict[str, Any] | None = None
    oracle: str = ""
    host: str = ""

    def algorithm(self) -> Algorithm:
        """The library's algorithm; hosts of filters weigh all clients alike, as the oracle does."""
        if not self.host:
            return make(self.name, **self.arguments)
        mu = {"mu": self.renamed["mu"]} if self.renamed and "mu" in self.renamed else {}
        return make(self.name, **self.arguments, host=replace(make(self.host, **mu), aggregation=Uniform()))

    def expected(self, view: View, local: Local, rounds: int) -> Tensor:
        """The oracle's models."""
        settings = methods.Settings(local.lr, local.decay, local.weight_decay, local.clip)
        name = self.oracle or self.name.replace("-", "_")
        hyper = self.arguments if self.renamed is None else self.renamed
        return flat(methods.run(name, view, settings, rounds, **hyper))

    def __str__(self) -> str:
        """Its name in the report."""
        shown = {key: getattr(value, "__name__", value) for key, value in (self.renamed or self.arguments).items()}
        return f"{self.name}{''.join(f'-{key}={value}' for key, value in shown.items())}"


CASES = [
    Case("fedavg"),
    Case("uniform"),
    Case("fedprox", {"mu": 0.3}),
    Case("scaffold"),
    Case("feddyn", {"mu": 0.2}),
    Case("fedcm", {"a": 0.3}),
    Case("fedavgm", {"beta": 0.6}),
    Case("fedavgm", {"beta": 0.6, "lr": 0.5, "nesterov": True}, {"beta": 0.6, "server_lr": 0.5, "nesterov": True}),
    Case("fedsam", {"rho": 0.2}),
    Case("fedasam", {"rho": 0.5, "eta": 0.1}),
    Case("mofedsam", {"rho": 0.2, "a": 0.3}),
    Case("fedgamma", {"rho": 0.2}),
    Case("fedspeed", {"rho": 0.2, "mu": 0.2}),
    Case("fedspeed", {"rho": 0.2, "mu": 0.2, "blend": 0.4}),
    Case("fedlesam", {"rho": 0.2}),
    Case("fedlesam-s", {"rho": 0.2}),
    Case("fedlesam-d", {"rho": 0.2, "mu": 0.2}),
    Case("fedfft", {"rho": 0.2, "r": 0.2}),
    Case("fedfft-s", {"rho": 0.2, "r": 0.2}),
    Case("fedfft-d", {"rho": 0.2, "r": 0.2, "mu": 0.2}),
    Case("specgrad", {"r": 0.2}),
    Case("specgrad", {"r": 0.2}, {"r": 0.2, "host": "fedprox", "mu": 0.3}, host="fedprox"),
    Case("specgrad", {"r": 0.2}, {"r": 0.2, "host": "scaffold"}, host="scaffold"),
    Case("specgrad", {"r": 0.2}, {"r": 0.2, "host": "feddyn", "mu": 0.2}, host="feddyn"),
    Case("specgrad", {"filter": moving_average(0.2)}, {"r": 0.2, "phi": slow.lap_d}),
    Case("specgrad", {"filter": gaussian(0.2)}, {"r": 0.2, "phi": slow.gaussian}),
]
EXACT = [case for case in CASES if Sums.SLOPES not in case.algorithm().uses]
SLOPED = [case for case in CASES if Sums.SLOPES in case.algorithm().uses]


def test_every_algorithm_has_an_oracle() -> None:
    """Here or in another file that compares with an oracle, where a case is named by its algorithm."""
    tested = {case.name for case in CASES}
    for file in set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)}:
        if "def test_equals_its_oracle(" in (text := file.read_text()):
            tested |= {name for name in ALGORITHMS if f'"{name}' in text}
    assert tested | {"moon", "fedcr"} == set(ALGORITHMS)  # these two are in test_moon.py and test_fedcr.py


class Net(nn.Module):
    """A convolution, a normalisation without running statistics and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten())
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of 4 x 4 images."""
        out: Tensor = self.head(self.body(x))
        return out


def pictures() -> TensorTask:
    draw = torch.Generator().manual_seed(5)
    sizes = (5, 12, 7, 9, 3)
    targets = torch.cat([(torch.rand(n, generator=draw) < 0.3).long() + i % 2 for i, n in enumerate(sizes)])
    inputs = torch.randn(sum(sizes), 1, 4, 4, generator=draw, dtype=torch.float64) + targets.view(-1, 1, 1, 1)
    clients = torch.split(torch.arange(sum(sizes)), list(sizes))
    return TensorTask(lambda: Net().double(), inputs, targets, clients)


BOWLS = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
TASKS: dict[str, tuple[Task, Local, int]] = {
    "quadratics": (BOWLS, Local(lr=0.05, decay=0.97, epochs=2, batch_size=2), 9),
    "clipped quadratics": (BOWLS, Local(lr=0.05, decay=0.97, clip=5.0, epochs=2, batch_size=2), 9),
    "network": (pictures(), Local(lr=0.05, decay=0.9, epochs=2, batch_size=4), 5),
    "clipped network": (pictures(), Local(lr=0.05, decay=0.9, clip=1.5, epochs=2, batch_size=4), 5),
}


def both(case: Case, task: Task, local: Local, rounds: int) -> tuple[Tensor, Tensor]:
    view = View(task, local, cohort=3, seed=2)
    return path(case.algorithm(), task, local, rounds, cohort=3, seed=2), case.expected(view, local, rounds)


@pytest.mark.parametrize("name", ["clipped quadratics", "clipped network"])
def test_the_clip_cuts_some_gradients_and_spares_others(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    task, local, rounds = TASKS[name]
    seen = spy(monkeypatch)
    path(make("fedavg"), task, local, rounds, 3, 2)
    cut = [float(look.here.norm()) > local.clip for look in seen.steps]  # type: ignore[operator]
    assert len(cut) / 5 < sum(cut) < len(cut) * 4 / 5


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", ["clipped quadratics", "clipped network"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_its_oracle(case: Case, task: str) -> None:
    close(*both(case, *TASKS[task]))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", ["quadratics", "network"])
@pytest.mark.parametrize("case", EXACT, ids=str)
def test_equals_its_oracle_with_weight_decay(case: Case, task: str) -> None:
    problem, local, rounds = TASKS[task]
    close(*both(case, problem, replace(local, weight_decay=0.05), rounds - 2))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", ["quadratics", "network"])
@pytest.mark.parametrize("case", SLOPED, ids=str)
def test_slopes_lose_their_decay_almost_exactly(case: Case, task: str) -> None:
    # The library takes the decay out of a slope along the straight line from w0 to w0 + delta, the oracle along the
    # true path. The means of w differ by less than |delta|/2, so a slope is off by at most wd |delta| / 2, and the
    # steps * lr that follow it move the model by at most steps * lr * wd / 2 of a displacement.
    problem, local, rounds = TASKS[task]
    decayed = replace(local, weight_decay=1e-3)
    steps = max(local.step_count(problem.examples(client), client, 0, 0) for client in range(problem.population))
    found, expected = both(case, problem, decayed, rounds)
    start = flat([View(problem, local).start()])
    travelled = torch.diff(torch.cat([start, expected]), dim=0).norm(dim=1).sum()
    error = (found - expected).norm(dim=1).max()
    assert error <= steps * local.lr * 1e-3 / 2 * travelled
    free = path(case.algorithm(), problem, local, rounds, cohort=3, seed=2)
    assert error < (found - free).norm(dim=1).max() / 20, "the decay itself must be right"
    if task == "network":
        return
    tenth, exact = both(case, problem, replace(local, weight_decay=1e-4), rounds)
    assert (tenth - exact).norm(dim=1).max() < error / 5, "the error is of first order in the decay"


LAYOUT = Layout(
    ("a.weight", "b.weight", "c.weight", "d.weight", "d.bias", "e.bias", "f", "scalar", "g.weight", "h.weight"),
    ((4, 3, 3, 3), (3, 2, 5, 4), (7, 9), (6, 4, 5), (120,), (41,), (6,), (), (5, 4, 1, 1), (2, 3, 4, 7)),
)
PAIRS: list[tuple[Callable[..., Filter], Callable[..., np.ndarray], list[float]]] = [
    (high_pass, slow.high_pass, [0.0, 0.03, 0.1, 0.35, 0.9]),
    (low_pass, slow.low_pass, [0.0, 0.03, 0.1, 0.35, 0.9]),
    (moving_average, slow.lap_d, [0.0, 0.05, 0.2, 0.31, 0.5]),
    (gaussian, slow.gaussian, [0.0, 0.05, 0.2, 0.5]),
    (lap_d, lambda t, window: slow.lap_d(t, 1.2067 / window), [3, 5, 25]),
    (gd, lambda t, sigma: slow.gaussian(t, 0.3748 / sigma), [0.5, 1.5, 7.5]),
    (rescale, slow.rescale, [0.0, 0.1, 0.35]),
    (clip_coordinates, slow.clip_coordinates, [0.5, 1.0, 3.0]),
]
GRID = [(make, oracle, value) for make, oracle, values in PAIRS for value in values]
V = torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def filtered_slowly(f: Callable[[np.ndarray], np.ndarray], covers: Callable[[str, Tensor], bool]) -> Tensor:
    named = LAYOUT.named(V.clone())
    done = [torch.from_numpy(np.asarray(f(x.numpy()))) if covers(name, x) else x for name, x in named.items()]
    return torch.cat([x.reshape(-1) for x in done])


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("scope", ["all", "weights", ("a.*", "*bias")], ids=str)
@pytest.mark.parametrize("order", ["0123", "0231", "0312", "3210", "1230", "2130", "2310"])
@pytest.mark.parametrize(("make", "oracle", "value"), GRID)
def test_filters_equal_their_oracles(make: Any, oracle: Any, value: float, order: str, scope: Any) -> None:
    names = {"all": LAYOUT.names, "weights": [n for n, x in LAYOUT.named(V).items() if x.dim() >= 2]}.get(
        str(scope), ["a.weight", "d.bias", "e.bias"]
    )
    expected = filtered_slowly(
        lambda t: slow.ordered(t, order, lambda x: oracle(x, value)), lambda name, x: name in names
    )
    close(make(value, order=order, scope=scope)(V, LAYOUT), expected)


@pytest.mark.parametrize("r", [0.03, 0.2, 0.5])
def test_two_dimensional_filter_equals_its_oracle(r: float) -> None:
    close(high_pass_2d(r)(V, LAYOUT), filtered_slowly(lambda t: slow.high_pass_2d(t, r), lambda name, x: True))


def test_shuffled_order_is_one_fixed_permutation_per_tensor() -> None:
    found = LAYOUT.split(high_pass(0.2, order="random:7")(V, LAYOUT))
    for i, (x, y) in enumerate(zip(LAYOUT.split(V), found, strict=True)):
        shuffle = _shuffle(7, i, x.numel(), x.device)
        close(y.reshape(-1)[shuffle], torch.from_numpy(slow.high_pass(x.reshape(-1)[shuffle].numpy(), 0.2)))


@pytest.mark.parametrize("r", [0.0, 0.1, 0.5])
def test_random_stop_zeroes_the_bins_it_draws(r: float) -> None:
    filter, generator = random_stop(r), torch.Generator().manual_seed(11)
    seen = []
    for _ in range(2):
        drawn = []
        for x, y in zip(LAYOUT.split(V), LAYOUT.split(filter(V, LAYOUT, generator)), strict=True):
            left = torch.fft.rfft(y.reshape(-1)).abs() / torch.fft.rfft(x.reshape(-1)).abs()
            bins = torch.nonzero(left < 0.5).flatten().tolist()
            assert len(bins) == slow.cut_of(x.numel(), r)
            close(y, torch.from_numpy(slow.drop_bins(x.numpy(), bins)))
            drawn.append(bins)
        seen.append(drawn)
    assert (seen[0] == seen[1]) == (r == 0), "every call draws anew"
    assert r == 0 or seen[0][3] != seen[0][4], "tensors of one size draw apart"


def test_client_states_follow_the_true_path_without_decay() -> None:
    # Unequal steps, clipped gradients: c_i is still the mean of what the client descended along, c their mean.
    frames = watch(make("scaffold"), *TASKS["clipped quadratics"], cohort=3, seed=2)
    for frame in frames:
        close(torch.stack(frame.client("drift", "c")).mean(0), part_of(frame.after, "drift").c)
