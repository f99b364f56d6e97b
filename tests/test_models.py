"""The models: their sizes, their outputs, their initial weights."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from undrift.models import CNN5, resnet
from undrift.vector import bind

MODELS: dict[str, Callable[[], nn.Module]] = {
    "cnn5": CNN5,
    "resnet8": lambda: resnet(8),
    "resnet20": resnet,
    "resnet56-2": lambda: resnet(56, width=2),
}


def weights(make: Callable[[], nn.Module], seed: int) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return bind(make()).w


def linear(inner: int, outer: int) -> int:
    return (inner + 1) * outer


def residual(depth: int, width: int, classes: int) -> int:
    """Convolutions without bias, two affine numbers per normed channel, 1 x 1 shortcuts where the shape changes."""
    count = 3 * 9 * 16 + 2 * 16
    inner = 16
    for stage in range(3):
        outer = 16 * width * 2**stage
        for block in range((depth - 2) // 6):
            count += 9 * inner * outer + 9 * outer * outer + 4 * outer
            if block == 0 and (stage > 0 or inner != outer):
                count += inner * outer + 2 * outer
            inner = outer
    return count + linear(inner, classes)


@pytest.mark.parametrize(("classes", "channels"), [(10, 3), (100, 3), (10, 1)])
def test_cnn5_size(classes: int, channels: int) -> None:
    convolutions = linear(25 * channels, 64) + linear(25 * 64, 64)
    expected = convolutions + linear(1600, 1024) + linear(1024, 1024) + linear(1024, classes)
    assert bind(CNN5(classes, channels)).layout.size == expected
    if (classes, channels) == (10, 3):
        assert expected == 2_806_602


@pytest.mark.parametrize(
    ("depth", "width", "classes", "size"),
    [(8, 1, 10, 78_042), (20, 1, 10, 272_474), (20, 1, 100, 278_324), (56, 2, 10, None)],
)
def test_resnet_size(depth: int, width: int, classes: int, size: int | None) -> None:
    model = resnet(depth, classes, width=width)
    expected = residual(depth, width, classes)
    assert bind(model).layout.size == expected
    assert size in (None, expected)
    main = [m for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in name]
    assert len(main) == depth


@pytest.mark.parametrize("name", MODELS)
def test_output(name: str) -> None:
    out = MODELS[name]()(torch.zeros(2, 3, 32, 32))
    assert out.shape == (2, 10)
    assert out.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_same_weights_under_the_same_seed(name: str) -> None:
    assert torch.equal(weights(MODELS[name], 3), weights(MODELS[name], 3))
    assert not torch.equal(weights(MODELS[name], 3), weights(MODELS[name], 4))


def test_every_parameter_learns() -> None:
    for make in (CNN5, resnet):
        bound = bind(make())
        gradient = bound.gradient(bound.module(torch.randn(4, 3, 32, 32)).square().sum())
        assert all(tensor.abs().sum() > 0 for tensor in bound.layout.split(gradient))


def test_norms_have_the_groups_asked_for() -> None:
    norms = [m for m in resnet(8, groups=4).modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 9
    assert {m.num_groups for m in norms} == {4}
    assert not any(isinstance(m, nn.BatchNorm2d) for m in resnet().modules())


@pytest.mark.parametrize("depth", [2, 18, 21])
def test_resnet_refuses_other_depths(depth: int) -> None:
    with pytest.raises(ValueError, match="depth must be 6 n \\+ 2"):
        resnet(depth)


def test_resnet_refuses_no_width() -> None:
    with pytest.raises(ValueError, match="width must be 1 or more, got 0"):
        resnet(width=0)
