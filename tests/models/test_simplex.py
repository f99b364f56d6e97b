"""The simplex model: its corners, its size, that they stay, and what is refused."""

from functools import partial

import pytest
import torch
from torch import nn

from oracle.labels import corners as by_hand
from test_models import linear, seeded, size
from undrift.core.model.flat_model import bind
from undrift.models import CNN5, Simplex, SmallCNN, build, corners, head, simplex_cnn


@pytest.mark.parametrize(("classes", "dimension"), [(2, 2), (3, 3), (3, 7), (10, 10), (100, 128)])
def test_corners(classes: int, dimension: int) -> None:
    v = corners(classes, dimension, 3)
    expected = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(v.T @ v, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(v.sum(dim=1), torch.zeros(dimension, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(v, by_hand(classes, dimension, 3), rtol=0, atol=1e-10)


def test_corners_depend_on_the_seed_alone() -> None:
    one, other = (seeded(partial(Simplex, nn.Flatten(), 4, 3), seed) for seed in (1, 2))
    assert torch.equal(one.vertices, other.vertices) and not torch.equal(one.head.weight, other.head.weight)  # type: ignore[arg-type, union-attr]
    assert not torch.equal(one.vertices, Simplex(nn.Flatten(), 4, 3, seed=1).vertices)  # type: ignore[arg-type]


def test_size() -> None:
    """The small CNN, whose head gives features in place of logits, and the scale."""
    assert size(simplex_cnn()) == size(SmallCNN()) + 1 == 206_923
    shared = size(SmallCNN(7, 3, 16)) - linear(128, 7)
    assert size(simplex_cnn(7, 3, 16, dimension=64)) == shared + linear(128, 64) + 1
    model = build("simplex-cnn", classes=10, channels=1, image=28, body="cnn", scale=10.0)
    assert size(model) == size(CNN5(10, 1, 28)) + 1 and model.scale.item() == 10  # type: ignore[operator]
    assert head(model) == ("head.*",)


def test_logits_are_scaled_cosines() -> None:
    model = seeded(partial(Simplex, nn.Identity(), 4, 3, 5, 2.5), 0).double()
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    f = model.head(x)  # type: ignore[operator]
    cosines = torch.cosine_similarity(f[:, :, None], model.vertices[None], dim=1)  # type: ignore[index]
    torch.testing.assert_close(model(x), 2.5 * cosines, rtol=1e-6, atol=1e-6)
    assert torch.equal(model(x), model.eval()(x))


def test_a_feature_of_zero_has_a_gradient() -> None:
    model = Simplex(nn.Identity(), 2, 2)
    with torch.no_grad():
        model.head.weight.zero_(), model.head.bias.zero_()
    model(torch.ones(1, 2)).sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_the_corners_neither_train_nor_travel() -> None:
    model = Simplex(nn.Flatten(), 4, 3).double()
    assert model.vertices.dtype == torch.float64 and set(model.state_dict()) == {"scale", "head.weight", "head.bias"}
    bound = bind(model)
    assert len(bound.buffers) == 0 and bound.layout.names == ("scale", "head.weight", "head.bias")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "corners: a simplex needs 2 classes or more, got 1"),
        ({"classes": 5, "dimension": 4}, "corners: dimension must be at least the 5 classes, got 4"),
        ({"scale": 0.0}, "Simplex: scale must be positive and finite, got 0.0"),
        ({"body": "lstm"}, "body must be 'small-cnn' or 'cnn', got 'lstm'"),
    ],
)
def test_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simplex_cnn(**arguments)  # type: ignore[arg-type]


def test_targets_that_are_no_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'simplex-cnn' has a corner for every class, and these .* no simplex model"):
        build("simplex-cnn", outputs=3, channels=1, image=16)
