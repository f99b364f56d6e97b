"""Noisy gradients of single examples: their formula, what they refuse, and what is stated of them."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from undrift import Local, Simulation, TensorTask
from undrift.core.client.examples import NoisyOracle
from undrift.core.model.flat_model import bind
from undrift.core.model.random import generator
from undrift.core.server.wire import fingerprint
from undrift.engine.flower.server.strategy import UndriftStrategy
from undrift.privacy import ExampleReleases, example_epsilons, gaussian_epsilon
from undrift.runs import ConfigError, start


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def task_of(model: Any = small, each: int = 10) -> TensorTask:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6 * each, 4, generator=draw)
    return TensorTask(model, x, (x.sum(1) > 0).long(), [range(i * each, (i + 1) * each) for i in range(6)])


def simulate(method: str = "fedavg", model: Any = small, **local: Any) -> Simulation:
    settings = {"lr": 0.1, "batch_size": 4, "epochs": 1, **local}
    return Simulation(method, task_of(model), Local(**settings), cohort=3, seed=2, failures="raise")


@pytest.mark.quick
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "feddyn", "fedsam", "fedcm", "median", "fedprox"])
def test_with_a_large_norm_and_no_noise_it_is_the_method_itself(method: str) -> None:
    ours, plain = (simulate(method, **local).run(3) for local in ({"example_clip": 1e6}, {}))
    torch.testing.assert_close(ours.params, plain.params, rtol=1e-4, atol=1e-6)


def test_the_gradient_is_the_formula() -> None:
    """Every gradient by itself in double precision, clipped, summed, with the noise of the stream, over the batch."""
    model = bind(small().double())
    x, y = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(7) % 2

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model.module(batch[0]), batch[1])

    oracle = NoisyOracle(model, loss, partial(generator, 5, 1, 2), c=0.4, noise=1.5)
    offset = torch.full_like(model.w, 0.01)
    for given in (None, offset):
        oracle.next(0, (x, y))
        found = oracle.gradient(given).clone()
        point = model.w.clone()
        model.load(point if given is None else point + given, model.buffers, model.counts)
        total = torch.zeros_like(point)
        for i in range(7):
            own = model.gradient(loss((x[i : i + 1], y[i : i + 1])))
            total += own * min(1.0, 0.4 / float(own.norm()))
        model.load(point, model.buffers, model.counts)
        drawn = generator(5, 1, 2, "example noise")
        noises = [torch.randn(total.shape, generator=drawn, dtype=torch.float64) for _ in range(2)]
        noise = noises[0 if given is None else 1]
        torch.testing.assert_close(found, (total + 1.5 * 0.4 * noise) / 7, rtol=1e-10, atol=1e-12)
    assert oracle.gradients == 2 and len(oracle.losses) == 2


def test_one_example_moves_the_sum_by_c_at_most() -> None:
    simulation = simulate(example_clip=0.3, example_noise=0.0)
    model = simulation.worker.model
    oracle = NoisyOracle(model, partial(simulation.task.loss, model.module), partial(generator, 0, 0, 0), 0.3, 0.0)
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    sums = []
    for value in (1.0, 1e6, float("nan")):
        x[3] = value
        oracle.next(0, (x, y))
        sums.append(6 * oracle.gradient().double().clone())
    assert float((sums[0] - sums[2]).norm()) <= 0.3 * (1 + 1e-6) >= float((sums[1] - sums[2]).norm())


def test_noise_follows_from_the_seed() -> None:
    whole = simulate(example_clip=1.0, example_noise=1.0)
    state = whole.run(2)
    parts = simulate(example_clip=1.0, example_noise=1.0)
    assert fingerprint(parts.run(1, parts.run(1))) == fingerprint(state)
    assert fingerprint(simulate(example_clip=1.0, example_noise=0.0).run(2)) != fingerprint(state)


def test_each_client_is_accounted_by_the_rounds_it_was_drawn_for() -> None:
    """10 examples in batches of 4 have 3 steps a pass: 4 steps begin two passes; FedSAM takes two gradients of each."""
    for method, each in (("fedavg", 1), ("fedsam", 2)):
        simulation = simulate(method, example_clip=1.0, example_noise=4.0, steps=4, epochs=1)
        job, sample = simulation.job, Mock(side_effect=simulation.sample)
        releases = ExampleReleases(job.algorithm, simulation.task, simulation.local, 2, sample)
        releases.after(2)
        counts = releases.after(5)
        assert sample.call_count == 5
        assert sum(releases.after(1).values()) < sum(counts.values()) and releases.after(5) == counts
        drawn = [client for round in range(5) for client in simulation.sample(round)]
        assert counts == {client: 2 * each * drawn.count(client) for client in set(drawn)}
        stated = simulation.privacy(5, delta=1e-3)
        assert stated is not None and stated.unit == "example of a client"
        assert stated.epsilon == max(example_epsilons(4.0, counts, 1e-3).values())
        assert stated.epsilon == gaussian_epsilon(4.0, 1e-3, max(counts.values()))
    assert simulate().privacy(5) is None and simulate(example_clip=1.0).privacy(5) is None


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("method", "model", "local", "why"),
    [
        ("fedavg", normed, {}, "batch normalisation .* couples the examples"),
        ("feddecorr", small, {}, "has a penalty over the batch"),
        ("q-fedavg", small, {}, "may read losses"),
        ("fedavg + power-of-choice(4)", small, {}, "are not accounted"),
        ("uniform + private-sum(1.0, 1.0)", small, {"buffers": "keep"}, "leave one of both out"),
        ("fedavg", small, {"precision": "bf16"}, "need together = 1"),
    ],
)
def test_what_reads_more_of_an_example_is_refused(method: str, model: Any, local: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"example_clip = 1: .*{why}"):
        simulate(method, model, example_clip=1.0, example_noise=1.0, **local)


@pytest.mark.parametrize("method", ["scaffold-i", "ditto"])
def test_gradients_beside_training_are_refused(method: str) -> None:
    with pytest.raises(Exception, match=r"it has no noise, so Local\(example_clip|given once"):
        simulate(method, example_clip=1.0, example_noise=1.0).run(1)


def test_settings_and_deployments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"example_noise = 1\.0 needs example_clip"):
        Local(example_noise=1.0)
    with pytest.raises(ValueError, match="protects in simulations only"):
        UndriftStrategy("fedavg", small(), Local(example_clip=1.0, example_noise=1.0), population=6)


def test_a_stored_run_has_its_statement_and_keeps_its_budget(tmp_path: Path) -> None:
    local = Local(lr=0.1, batch_size=4, example_clip=1.0, example_noise=5.0)
    given: dict[str, Any] = {"method": "fedavg", "cohort": 3, "local": local, "delta": 1e-3, "task": task_of()}
    out = start(folder=tmp_path / "fits", rounds=2, epsilon=3.0, **given)
    assert out.summary["privacy"]["unit"] == "example of a client" and 0 < out.summary["privacy"]["epsilon"] <= 3.0
    with pytest.raises(ConfigError, match=r"epsilon: 2 rounds would spend more than 0\.1, 0 rounds fit"):
        start(folder=tmp_path / "over", rounds=2, epsilon=0.1, **given)
