"""The public oracles: what they need, their limits, and values derived by hand."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from undrift.testing.oracles import (
    Federation,
    Regression,
    ditto,
    fedadagrad,
    fedadam,
    fedavg,
    fedavgm,
    feddyn,
    fedprox,
    fedyogi,
    scaffold,
)

COHORTS = [[0, 1, 3], [1, 2, 4], [0, 2, 3]]
CLIENTS = Regression.random()


def q2c(rounds: int) -> Federation:
    """F_1 = w^2/2 and F_2 = (w - 4)^2 from 1, two steps of 0.25: the optimum is 8/3."""
    slopes = (lambda x: x, lambda x: 2 * (x - 4))
    return Federation(
        np.ones(1), lambda i, t, k, x: slopes[i](x), [1, 1], [[0, 1]] * rounds, lambda *_: 2, lambda _: 0.25
    )


def test_needs_no_torch() -> None:
    text = "import sys, undrift.testing.oracles; assert 'numpy' in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_the_gradient_is_that_of_torch() -> None:
    federation = CLIENTS.federation(COHORTS)
    linear = nn.Linear(4, 3, dtype=torch.float64)
    nn.utils.vector_to_parameters(torch.from_numpy(federation.start), linear.parameters())
    loss = nn.functional.cross_entropy(
        linear(torch.from_numpy(CLIENTS.inputs[1])), torch.from_numpy(CLIENTS.targets[1])
    )
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(linear.parameters()))])
    np.testing.assert_allclose(federation.gradient(1, 0, 0, federation.start), expected, atol=1e-14)


def test_values_of_the_sheet() -> None:
    np.testing.assert_allclose(fedavg(q2c(3))[:, 0], [1.90625, 2.274414, 2.423981], atol=5e-7)
    np.testing.assert_allclose(scaffold(q2c(3))[:, 0], [1.90625, 2.358398, 2.548981], atol=5e-7)
    np.testing.assert_allclose(fedavg(q2c(60))[-1], 48 / 19, atol=1e-9)
    np.testing.assert_allclose(scaffold(q2c(60))[-1], 8 / 3, atol=1e-9)
    np.testing.assert_allclose(feddyn(q2c(200), 1.0)[-1], 8 / 3, atol=1e-6)


def test_one_round_by_hand() -> None:
    federation = CLIENTS.federation([[2]], steps=1)
    d = -0.2 * federation.gradient(2, 0, 0, federation.start)
    np.testing.assert_allclose(fedavg(federation)[0], federation.start + d)
    np.testing.assert_allclose(feddyn(federation, 0.5)[0], federation.start + d * (1 + 1 / 5))
    np.testing.assert_allclose(fedavgm(federation, 0.9, 0.5, True)[0], federation.start + 0.5 * 1.9 * d)
    v = 0.99 * 1e-6 + 0.01 * d**2
    np.testing.assert_allclose(
        fedadam(federation, 0.1, 0.9, 0.99, 1e-3)[0], federation.start + 0.01 * d / (v**0.5 + 1e-3)
    )
    np.testing.assert_allclose(
        fedadagrad(federation, 0.1, 0.9, 1e-3)[0], federation.start + 0.01 * d / ((1e-6 + d**2) ** 0.5 + 1e-3)
    )
    np.testing.assert_allclose(
        fedyogi(federation, 0.1, 0.9, 0.99, 1e-3)[0],
        federation.start + 0.01 * d / ((1e-6 - 0.01 * d**2 * np.sign(1e-6 - d**2)) ** 0.5 + 1e-3),
    )


def test_limits() -> None:
    federation = CLIENTS.federation(COHORTS)
    expected = fedavg(federation)
    np.testing.assert_array_equal(fedprox(federation, 0.0), expected)
    np.testing.assert_allclose(fedavgm(federation, 0.0), expected)
    path, own = ditto(federation, 0.0)
    np.testing.assert_array_equal(path, expected)
    np.testing.assert_allclose(own[4], federation.visit(4, 1, expected[0])[0])
    equal = CLIENTS.federation([[1]] * 3)
    np.testing.assert_allclose(scaffold(equal)[0], fedavg(equal)[0])


@pytest.mark.parametrize("weighted", [True, False])
def test_weights_add_to_one(weighted: bool) -> None:
    weights = CLIENTS.federation(COHORTS).weights(0, weighted)
    assert weights.sum() == pytest.approx(1)
    assert bool((weights == weights[0]).all()) is not weighted


def test_clip_and_decay() -> None:
    plain = CLIENTS.federation([[0]], steps=1)
    short = Federation(**{**vars(plain), "clip": 1e-3, "weight_decay": 0.1})
    g = plain.gradient(0, 0, 0, plain.start)
    expected = plain.start - 0.2 * (1e-3 * g / np.linalg.norm(g) + 0.1 * plain.start)
    np.testing.assert_allclose(fedavg(short)[0], expected)
