"""Noise that is correlated over rounds: its matrix, its turns, its epsilon and what it saves."""

from functools import partial
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz
from torch import nn

from undrift import Local, Simulation, TensorTask, parse
from undrift.blocks import PrivateSum
from undrift.blocks.release.private import correlation, inverse
from undrift.core.server.wire import fingerprint
from undrift.privacy import gaussian_epsilon
from undrift.runs import audit_simulation
from undrift.testing.tasks import Quadratics

TASK, LOCAL = Quadratics.random(12), Local(lr=0.05, batch_size=4, steps=3)


def lower(column: list[float], size: int) -> np.ndarray:
    """The lower triangular Toeplitz matrix of a first column."""
    whole = np.zeros(size)
    whole[: min(len(column), size)] = column[:size]
    return np.tril(toeplitz(whole))


def test_the_matrix_is_the_square_root_of_prefix_sums() -> None:
    size = 12
    root = lower(correlation(size), size)
    np.testing.assert_allclose(root @ root, np.tril(np.ones((size, size))), atol=1e-12)


@pytest.mark.parametrize("separation", [1, 2, 3, 5])
def test_the_inverse_is_one_and_columns_of_a_client_are_orthogonal(separation: int) -> None:
    size, factors = 12, correlation(separation)
    matrix = lower(factors, size)
    np.testing.assert_allclose(matrix @ lower(inverse(factors, size), size), np.eye(size), atol=1e-12)
    rounds = matrix[:, ::separation]  # a client's, if it takes part as often as it can
    products = rounds.T @ rounds
    np.testing.assert_allclose(products - np.diag(np.diag(products)), 0, atol=1e-12)
    assert products.max() == pytest.approx(sum(f * f for f in factors))


def test_the_noise_of_a_run_has_this_covariance() -> None:
    """Runs with noise minus the same run without it: their increments are noise c |f| C^-1 Z over the cohort."""
    task = TensorTask(partial(nn.Linear, 100, 400), torch.zeros(8, 100), torch.zeros(8).long(), [[i] for i in range(8)])
    local, rounds = Local(lr=1e-9, batch_size=1, steps=1), 6
    simulation = Simulation("uniform + private-sum(0.5, 2, separation=4)", task, local, seed=3)
    start = simulation.start()
    models = [start.params.double(), *(state.params.double() for state, _ in simulation.rounds(rounds, start))]
    found = torch.stack([(b - a) for a, b in pairwise(models)]) * simulation.setting.expected
    factors = correlation(4)
    back = lower(inverse(factors, rounds), rounds) * 2 * 0.5 * sqrt(sum(f * f for f in factors))
    expected, count = back @ back.T, found.shape[1]
    assert np.abs(np.cov(found.numpy()) - expected).max() < 5 * expected.max() / sqrt(count)


def test_clients_take_turns() -> None:
    simulation = Simulation("uniform + private-sum(0.5, 1, separation=3)", TASK, LOCAL, seed=1)
    rounds = [set(record.clients) for _, record in simulation.rounds(6)]
    assert simulation.participation.expected == 4 and rounds[:3] == rounds[3:]
    assert [len(clients) for clients in rounds[:3]] == [4, 4, 4] and set.union(*rounds) == set(range(12))
    with pytest.raises(ValueError, match="the population of 4 in 3 turns, got 6"):
        Simulation("uniform + private-sum(0.5, 1, separation=3)", TASK, LOCAL, cohort=6)


def test_a_separation_of_one_changes_no_bit() -> None:
    plain, other = (
        Simulation(f"uniform + private-sum(0.5, 1{more})", TASK, LOCAL, cohort=6, seed=3).run(3)
        for more in ("", ", separation=1")
    )
    assert fingerprint(plain) == fingerprint(other)


def test_resumed_runs_have_the_same_noise() -> None:
    method = "scaffold + uniform + private-sum(0.5, 1, separation=3)"
    whole = Simulation(method, TASK, LOCAL, seed=3).run(5)
    simulation = Simulation(method, TASK, LOCAL, seed=3)
    assert fingerprint(simulation.run(3, simulation.run(2))) == fingerprint(whole)


def test_its_epsilon_counts_the_rounds_of_one_client() -> None:
    simulation = Simulation("uniform + private-sum(0.5, 2, separation=3)", TASK, LOCAL)
    stated = simulation.privacy(10, delta=1e-3)
    assert stated is not None and stated.epsilon == gaussian_epsilon(2.0, 1e-3, 4)  # rounds 1, 4, 7 and 10
    assert "one round of 3" in stated.sampling and stated.relation == "one client's uploads set to zero"
    assert audit_simulation(simulation, 10, canaries=20, delta=1e-3).holds


def test_the_model_has_less_noise_at_the_same_epsilon() -> None:
    """The mean over rounds of the variance of the summed noise, for the same number of participations and epsilon."""
    rounds, turns = 64, 16
    factors = correlation(turns)
    sums = np.tril(np.ones((rounds, rounds)))
    correlated = np.square(sums @ lower(inverse(factors, rounds), rounds)).sum() * sum(f * f for f in factors)
    assert correlated < 0.3 * np.square(sums).sum()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="separation must be 1 round or more, got 0"):
        PrivateSum(separation=0)
    with pytest.raises(TypeError, match="lets rounds overlap; leave it out"):
        parse("uniform + private-sum(0.5, 1, separation=3) + buffered(2)")
