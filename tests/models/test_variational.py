"""The variational model: its size, what its output means, and where its noise comes from."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from test_models import linear, seeded, size
from undrift.core.model.flat_model import bind
from undrift.models import CNN5, SmallCNN, Variational, build, variational_cnn

X = torch.randn(7, 2, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def small(samples: int) -> Variational:
    """Three latent units over the pixels themselves, five classes; the same weights whatever the samples."""
    return seeded(partial(Variational, nn.Flatten(), 4, 3, 5, samples), 0).double()  # type: ignore[return-value]


def test_variational_cnn_size() -> None:
    """The small CNN without its head, two numbers for each of 512 latent units, and a head that reads one."""
    shared = size(SmallCNN()) - linear(128, 10)
    assert size(variational_cnn()) == shared + linear(128, 1024) + linear(512, 10) == 342_858
    other = size(SmallCNN(7, 3, 16)) - linear(128, 7)
    assert size(variational_cnn(7, 3, 16, latent=5)) == other + linear(128, 10) + linear(5, 7)
    assert variational_cnn().samples == 18


def test_the_body_may_be_fedfsas_cnn() -> None:
    """Its five layers without the last, which had 1024 inputs; the arguments of a run file reach it."""
    for image, channels, classes in ((28, 1, 10), (32, 3, 100), (64, 3, 200)):
        body = size(CNN5(classes, channels, image)) - linear(1024, classes)
        model = build("variational-cnn", classes=classes, channels=channels, image=image, body="cnn")
        assert size(model) == body + linear(1024, 1024) + linear(512, classes)
        assert model(torch.zeros(2, channels, image, image)).shape == (2, classes)
    with pytest.raises(ValueError, match="body must be 'small-cnn' or 'cnn', got 'lstm'"):
        variational_cnn(body="lstm")


def test_evaluation_averages_the_same_samples_for_every_example() -> None:
    model = small(6).eval()
    mean, raw = model.moments(X.flatten(1)).split(3, dim=1)
    noise = torch.randn(6, 1, 3, generator=torch.Generator().manual_seed(0)).double()
    each = torch.stack([model.head(mean + (1 + raw.exp()).log() * e) for e in noise])
    expected = (each.exp() / each.exp().sum(-1, keepdim=True)).log().mean(0)
    before = torch.get_rng_state()
    torch.testing.assert_close(model(X), expected)
    torch.testing.assert_close(model(X)[2:5], model(X[2:5]))  # an answer depends on the example alone
    assert torch.equal(torch.get_rng_state(), before)
    labels = torch.arange(7) % 5
    torch.testing.assert_close(cross_entropy(model(X), labels), cross_entropy(each.mean(0), labels))


def test_targets_that_are_no_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="'variational-cnn' gives log probabilities of classes, and these targets are"):
        build("variational-cnn", outputs=3, channels=1, image=16)


def test_without_samples_it_is_an_ordinary_network() -> None:
    model = small(0)
    mean = model.moments(X.flatten(1))[:, :3]
    torch.testing.assert_close(model(X), model.head(mean).log_softmax(1))
    assert torch.equal(model(X), model.eval()(X))


def test_training_draws_as_dropout_does() -> None:
    model, same = small(2), X[:1].expand(3, 2, 2)
    one, again, other = (seeded(lambda: model(same), seed) for seed in (3, 3, 4))
    assert torch.equal(one, again) and not torch.equal(one, other)  # type: ignore[arg-type]
    assert not torch.equal(one[0], one[1])  # type: ignore[index]  # every example has its own


def test_the_fixed_noise_neither_trains_nor_travels() -> None:
    model = small(2)
    assert model.noise.dtype == torch.float64 and "noise" not in model.state_dict()
    assert len(bind(model).buffers) == 0


def test_samples_are_counted_from_zero() -> None:
    with pytest.raises(ValueError, match="Variational: samples must be 0 or more, got -1"):
        Variational(nn.Flatten(), 4, samples=-1)
