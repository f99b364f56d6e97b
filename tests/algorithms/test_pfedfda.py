"""pFedFDA: an oracle, its heads, how much of its own a client takes, and limiting cases."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oracle import features as slow
from oracle.methods import Settings
from support.rounds import close, flat, part_of, path, watch
from test_personal_methods import Wide, own_models
from undrift import Local, Simulation, cost, parse
from undrift.algorithms import make
from undrift.blocks.personalization.gaussian_head import Gaussians, best_share, discriminant, estimate, mix
from undrift.core.model.random import SERVER, generator
from undrift.core.tasks.tensor_task import TensorTask
from undrift.testing import blobs

TASK = blobs((5, 12, 7, 9, 3))
LOCAL = Local(lr=0.02, decay=0.9, clip=1.0, weight_decay=0.01, epochs=2, batch_size=4)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("cohort", [3, 5])
@pytest.mark.parametrize("arguments", [{}, {"ridge": 1e-4}, {"beta": 0.3}, {"beta": 1.0}], ids=str)
def test_equals_its_oracle(arguments: dict[str, Any], cohort: int) -> None:
    first = torch.rand(3, 4, generator=generator(2, 0, SERVER, "means"), dtype=torch.float64).numpy()
    settings = Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)
    expected, own = slow.pfedfda(Wide(TASK, LOCAL, cohort, 2), settings, 4, first, **arguments)
    simulation = Simulation(make("pfedfda", **arguments), TASK, LOCAL, cohort=cohort, seed=2)
    states = [state for state, _ in simulation.rounds(4)]
    close(torch.stack([state.params for state in states]), flat(expected), 1e-7)  # heads divide by 1e-4
    close(torch.stack(own_models(simulation, states[-1])), flat([own[i] for i in range(TASK.population)]), 1e-7)


def drawn(n: int = 40, d: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    return torch.randn(n, d, generator=draw, dtype=torch.float64) + labels[:, None], labels


def test_the_head_is_the_posterior_of_gaussians() -> None:
    """Differences of logits are those of log pi N(z; mu, S), with S as it is regularised."""
    features, labels = drawn()
    known = estimate(features, labels, Gaussians(torch.zeros(3, 3).double(), torch.eye(3).double()), 1e-4)
    log_priors = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).log()
    weights, biases = discriminant(known, log_priors)
    s = (1 - 1e-4) * known.covariance + 1e-4 * known.covariance.trace() / 3 * torch.eye(3)
    density = [torch.distributions.MultivariateNormal(m, s).log_prob(features) for m in known.means]
    expected = torch.stack(density, dim=1) + log_priors
    found = features @ weights.T + biases
    close(found - found[:, :1], expected - expected[:, :1], 1e-9)


def test_covariances_are_positive_definite_with_fewer_examples_than_features() -> None:
    zero = Gaussians(torch.zeros(3, 30).double(), torch.eye(30).double())
    for n in (1, 2, 7):
        for ridge in (1e-4, 1.0):
            found = estimate(*drawn(n, 30), zero, ridge)
            assert float(torch.linalg.eigvalsh(found.covariance).min()) > 0.9 * ridge


def test_classes_with_few_examples_have_the_global_mean() -> None:
    features, labels = drawn(9)
    labels[:2], labels[2:] = 0, 1
    known = Gaussians(torch.full((3, 3), 7.0).double(), torch.eye(3).double())
    means = estimate(features, labels, known, 1.0).means
    assert torch.equal(means[[0, 2]], known.means[[0, 2]])
    close(means[1], features[2:].mean(dim=0))


def test_a_client_takes_what_fits_its_examples() -> None:
    """All of its own where the others' are wrong, little with few examples, nothing where it cannot judge."""
    features, labels = drawn(120)
    own = estimate(features, labels, Gaussians(torch.zeros(3, 3).double(), torch.eye(3).double()), 1e-4)
    even = torch.full((3,), 1 / 3).double().log()
    assert best_share(features, labels, Gaussians(own.means.flip(0), own.covariance), even, 1e-4) >= 0.9
    assert best_share(features[:3], labels[:3], own, even, 1e-4) == 0.0  # one example of each class
    close(mix(own, Gaussians(own.means * 0, own.covariance), 0.25).means, own.means / 4)
    many = estimate(*drawn(300, 8, 99), Gaussians(torch.zeros(3, 8).double(), torch.eye(8).double()), 1e-4)
    assert all(best_share(*drawn(18, 8, seed), many, even, 1.0) <= 0.5 for seed in range(8))


def test_shares_are_reported() -> None:
    for beta, least, most in ((None, 0.0, 1.0), (0.3, 0.3, 0.3)):
        ((_, record),) = Simulation(make("pfedfda", beta=beta), TASK, LOCAL).rounds(1)
        values = record.reports["personalization.beta"]
        assert least <= min(np.ravel(values)) <= max(np.ravel(values)) <= most


def test_beta_0_leaves_the_first_statistics() -> None:
    frames = watch(make("pfedfda", beta=0.0), TASK, LOCAL, 3, 3)
    first, *rest = (part_of(frame.after, "personalization") for frame in frames)
    for after in rest:
        close(after.means, first.means)
        close(after.covariance, torch.eye(4).flatten())


def test_only_the_body_is_uploaded_and_corrected() -> None:
    for frame in watch(parse("pfedfda + scaffold"), TASK, LOCAL, 3, 3):
        for upload in frame.uploads.values():
            assert not upload.delta[-15:].any() and upload.delta[:-15].any()


def test_clients_with_one_class_stay_finite() -> None:
    alone: TensorTask = replace(TASK, targets=torch.zeros_like(TASK.targets))
    assert bool(torch.isfinite(path(make("pfedfda"), alone, LOCAL, 3, 3)).all())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pfedfda + combined-heads", r"combines trained heads, found personalization=GaussianHead\(beta=None"),
        ("pfedfda + local-adamw(moments='average')", "needs moments that the server does not average"),
        ("pfedfda + common-representation", "compares one feature vector per example"),
        ("pfedfda + fedetf", "the model of objective=BalancedSimplex has a fixed one"),
        ("pfedfda(beta=2)", r"GaussianHead: beta must be in \[0, 1\], or None"),
    ],
)
def test_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        parse(text)


def test_a_model_without_a_linear_head_is_refused() -> None:
    bare = TensorTask(lambda: torch.nn.Linear(5, 3, bias=False).double(), TASK.inputs, TASK.targets, TASK.clients)
    with pytest.raises(Exception, match="GaussianHead needs a model whose last module is linear, with a bias"):
        Simulation(make("pfedfda"), bare, LOCAL, failures="raise").run(1)


def test_cost_table() -> None:
    c = cost(make("pfedfda"))
    assert (c.down, c.up, c.client_state, c.gathers, c.kept) == (1, 1, 0, False, "<1") and make("pfedfda").personalized
