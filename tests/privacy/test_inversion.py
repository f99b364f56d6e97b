"""Gradient inversion: exact for one example of a linear layer, and worthless under secure sums and noise."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from undrift import Local, Secure, Simulation, TensorTask
from undrift.models import SmallCNN
from undrift.privacy import Inversion, input_errors, invert_gradient, invert_linear
from undrift.runs import ConfigError, invert_uploads

LOCAL = Local(lr=0.1, batch_size=4, epochs=2)


def double_model() -> nn.Module:
    """A perceptron in double precision."""
    return nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 5)).double()


def task(clients: int = 6, **changes: Any) -> TensorTask:
    """Eight examples of 30 numbers for each client."""
    drawn = torch.Generator().manual_seed(3)
    inputs = torch.randn(8 * clients, 30, generator=drawn, dtype=torch.float64)
    targets = torch.randint(5, (8 * clients,), generator=drawn)
    made = TensorTask(double_model, inputs, targets, list(torch.arange(8 * clients).chunk(clients)))
    return replace(made, **changes)


def attack(method: str = "fedavg", local: Local = LOCAL, **settings: Any) -> dict[tuple[str, int, int], Inversion]:
    """The errors, by what is seen, the number of examples and that of steps."""
    found = invert_uploads(Simulation(method, task(), local, seed=1, **settings))
    return {(one.seen, one.examples, one.steps): one for one in found}


def test_a_row_of_the_gradient_is_the_example_times_its_bias() -> None:
    """Softmax regression by hand: dW = (p - y) x^T and db = p - y."""
    random = np.random.default_rng(0)
    x, weight, bias = random.normal(size=7), random.normal(size=(3, 7)), random.normal(size=3)
    exponents = np.exp(weight @ x + bias)
    slope = exponents / exponents.sum() - np.eye(3)[1]
    found = invert_linear(torch.from_numpy(-0.3 * np.outer(slope, x)), torch.from_numpy(-0.3 * slope))
    np.testing.assert_allclose(found.numpy(), np.tile(x, (3, 1)), rtol=1e-12)


def test_errors_are_in_units_of_the_guess() -> None:
    truth, guess = torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.zeros(2)
    found = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert input_errors(found, truth, guess).tolist() == [0.0, 0.75]


@pytest.mark.parametrize(
    ("method", "local"),
    [
        ("fedavg", LOCAL),
        ("fedavg", replace(LOCAL, weight_decay=0.1)),
        ("scaffold", LOCAL),
        ("fedsam", LOCAL),
        ("uniform + private-sum(0.01, 5)", LOCAL),  # its server adds the noise itself, and sees the uploads
    ],
)
def test_one_example_in_one_plain_step_is_recovered(method: str, local: Local) -> None:
    found = attack(method, local)
    assert found["the upload", 1, 1].best < 1e-5 and found["the upload", 1, 1].recovered == 1
    batch, visit = found["the upload", 4, 1], found["the upload", 8, 4]
    assert batch.recovered >= visit.recovered and visit.median > 0.01


def test_a_unit_that_one_example_of_a_batch_uses_gives_that_example() -> None:
    """Hidden units of a perceptron are used by few examples, those of a linear model by all."""
    wide = attack()["the upload", 4, 1]
    linear = task(make=lambda: nn.Linear(30, 5).double())
    (_, mixed, *_) = invert_uploads(Simulation("fedavg", linear, LOCAL, seed=1))
    assert wide.best < 1e-5 and wide.recovered >= 0.5
    assert mixed.examples == 4 and mixed.best > 0.05


def test_the_attack_fails_under_secure_sums() -> None:
    pytest.importorskip("cryptography")
    linear = task(make=lambda: nn.Linear(30, 5).double())
    found = invert_uploads(Simulation("fedavg", linear, LOCAL, seed=1, secure=Secure(least=3), cohort=6))
    assert {one.seen for one in found} == {"the sum of 6 uploads", "the models"}
    assert all(one.best > 0.3 and one.recovered == 0 for one in found), found


def test_a_unit_that_one_example_of_a_round_uses_gives_that_example_in_the_sum_as_well() -> None:
    """A sum is a larger batch: only noise protects an example that a unit has for itself."""
    pytest.importorskip("cryptography")
    found = attack(secure=Secure(least=3), cohort=6)
    assert found["the sum of 6 uploads", 1, 1].best < 1e-5
    assert found["the sum of 6 uploads", 8, 4].recovered == 0


@pytest.mark.parametrize(
    ("method", "local", "seen"),
    [
        ("fedavg", replace(LOCAL, example_clip=1.0, example_noise=4.0), "the upload"),
        ("uniform + private-sum(0.1, 4)", LOCAL, "the models"),
    ],
)
def test_the_attack_fails_under_noise(method: str, local: Local, seen: str) -> None:
    errors = [one for (what, *_), one in attack(method, local).items() if what == seen]
    assert errors and all(one.best > 0.5 and one.recovered == 0 for one in errors), errors


def test_the_attack_fails_under_noise_from_the_clients() -> None:
    pytest.importorskip("cryptography")
    found = attack("uniform + private-shares(0.1, 4, 3)", secure=Secure(least=3), cohort=6)
    assert all(one.best > 0.5 and one.recovered == 0 for one in found.values()), found


def images(noise: float) -> list[Inversion]:
    drawn = torch.Generator().manual_seed(5)
    pictures = torch.nn.functional.interpolate(torch.randn(12, 1, 3, 3, generator=drawn), size=12, mode="bilinear")
    made = TensorTask(
        partial(SmallCNN, image=12), pictures, torch.randint(10, (12,), generator=drawn), [[0], list(range(1, 12))]
    )
    local = Local(steps=1, batch_size=1, example_clip=1.0 if noise else None, example_noise=noise)
    return invert_uploads(Simulation("fedavg", made, local, cohort=2), iterations=80)


@pytest.mark.sweep(every=4)
def test_a_search_recovers_an_image_from_a_convolutional_network_unless_there_is_noise() -> None:
    plain, noisy = images(0.0)[0], images(4.0)[0]
    assert plain.attack == "search" and plain.seen == "the upload"
    assert plain.best < 0.7 and noisy.best > 0.85, (plain, noisy)


def test_the_search_follows_the_cosine() -> None:
    """The gradient of x^2 / 2 has the direction of x, so a target is its own solution up to its length."""
    target = torch.tensor([1.0, -2.0, 0.5])
    found = invert_gradient(lambda x: x.flatten(), target, torch.ones(1, 3), low=-2, high=2, iterations=200)
    assert torch.nn.functional.cosine_similarity(found.flatten(), target, dim=0) > 0.999


def test_what_cannot_be_inverted_is_refused() -> None:
    symbols = TensorTask(lambda: nn.Embedding(5, 5), torch.zeros(4, dtype=torch.int64), torch.zeros(4).long(), [[0, 1]])
    with pytest.raises(ConfigError, match="where inputs are one tensor of numbers"):
        invert_uploads(Simulation("fedavg", symbols, LOCAL))
    none = Simulation("uniform + private-sum(1, 1)", task(), LOCAL, probability=1e-9)
    with pytest.raises(ConfigError, match="no client took part in 100 rounds"):
        invert_uploads(none)
