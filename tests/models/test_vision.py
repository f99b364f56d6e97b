"""The models of torchvision and timm, where these are installed."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from support.vision import torchvision as torchvision
from test_models import EXTRA, SHAPES, inputs, own, row, seeded, size
from undrift.core.model.flat_model import bind
from undrift.models import build, densenet121, head, resnet18, vision, vit_tiny


@pytest.mark.usefixtures("torchvision")
def test_sizes_are_those_of_the_sources() -> None:
    assert size(densenet121(1000, norm="batch", stem="imagenet")) == 7_978_856
    assert size(densenet121(1000, norm="group", stem="imagenet")) == 7_978_856
    assert size(densenet121(1000)) == 7_978_856 - 64 * 3 * (49 - 9)
    assert size(vit_tiny(1000, image=224, patch=16)) == 5_717_416
    assert size(densenet121(10, norm="last")) == 6_956_298  # that of FedLAW's code: no norm after the stem


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("kind", ["group", "batch"])
@pytest.mark.parametrize("image", [32, 64])
def test_our_resnet18_is_that_of_torchvision(torchvision: ModuleType, kind: str, image: int) -> None:
    layer = {"norm_layer": lambda channels: nn.GroupNorm(2, channels)} if kind == "group" else {}
    theirs = bind(torchvision.resnet18(num_classes=10, **layer))
    ours = bind(resnet18(norm=kind, stem="imagenet"))
    assert ours.layout.shapes == theirs.layout.shapes
    ours.w.copy_(theirs.w)
    images = torch.randn(3, 3, image, image, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours.module(images), theirs.module(images), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.buffers, theirs.buffers)


def test_densenet_with_batch_norm_is_that_of_torchvision(torchvision: ModuleType) -> None:
    theirs, ours = bind(torchvision.densenet121(num_classes=10)), bind(densenet121(norm="batch", stem="imagenet"))
    assert ours.layout == theirs.layout
    ours.w.copy_(theirs.w)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours.module.eval()(images), theirs.module.eval()(images))


@pytest.mark.usefixtures("torchvision")
def test_densenet_has_one_kind_of_norm() -> None:
    model = densenet121(groups=4)
    norms = [m for m in model.modules() if isinstance(m, nn.GroupNorm | nn.BatchNorm2d)]
    assert len(norms) == 121 and all(isinstance(m, nn.GroupNorm) and m.num_groups == 4 for m in norms)
    assert len(bind(model).buffers) == 0


@pytest.mark.usefixtures("torchvision")
def test_densenet_of_fedlaw_has_a_group_norm_after_its_last_dense_block_only() -> None:
    model = densenet121(groups=4, norm="last")
    norms = {name: m for name, m in model.named_modules() if isinstance(m, nn.GroupNorm | nn.BatchNorm2d)}
    groups = [name for name, m in norms.items() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 120 and groups == ["features.norm5"] and norms["features.norm5"].num_groups == 4
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(images), fedlaw(model, images))
        model.train(False)
        torch.testing.assert_close(model(images), fedlaw(model, images))


def fedlaw(model: nn.Module, x: Tensor) -> Tensor:
    """FedLAW's forward pass, layer by layer: norm, ReLU and convolution, twice in a layer and once in a transition."""
    parts = dict(model.get_submodule("features").named_children())
    layer: Any
    transition: Any
    x = parts["conv0"](x)
    for stage in range(1, 5):
        for layer in parts[f"denseblock{stage}"].children():
            new = layer.conv1(layer.norm1(x).relu())
            x = torch.cat([x, layer.conv2(layer.norm2(new).relu())], 1)
        if stage < 4:
            transition = parts[f"transition{stage}"]
            x = avg_pool2d(transition.conv(transition.norm(x).relu()), 2)
    out: Tensor = model.get_submodule("classifier")(avg_pool2d(parts["norm5"](x).relu(), 4).flatten(1))
    return out


@pytest.mark.quick
@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", EXTRA)
@pytest.mark.parametrize(("channels", "image"), SHAPES)
def test_output(name: str, channels: int, image: int) -> None:
    with torch.no_grad():
        out = build(name, classes=7, channels=channels, image=image)(torch.ones(1, channels, image, image))
    assert out.shape == (1, 7)
    assert out.isfinite().all()


@pytest.mark.sweep(every=2)
@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", EXTRA)
def test_a_seed_fixes_the_weights_and_a_vector_holds_them(name: str) -> None:
    first, again = bind(seeded(own(name), 3)), bind(seeded(own(name), 3))
    assert torch.equal(first.w, again.w)
    point = first.w + 0.01 * torch.randn(first.layout.size, generator=torch.Generator().manual_seed(1))
    first.place(point)
    again.w.copy_(point)
    x = inputs(name, 1)
    gradient = first.gradient(first.module(x).square().mean())
    assert torch.equal(gradient, again.gradient(again.module(x).square().mean())) and gradient.isfinite().all()


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", EXTRA)
def test_the_page_tells_the_truth(name: str) -> None:
    model = own(name)()
    assert row(name) == ("image", f"{size(model):,}", *head(model))
    if name == "vit-tiny":
        assert "patch_embed.proj.weight" in dict(model.named_parameters())


@pytest.mark.parametrize("make", [densenet121, vit_tiny])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named ..."), "needs (torchvision|timm): pip install 'undrift\\[vision\\]'"),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            "built for another torch than this one \\(operator torchvision::nms does not exist\\); install the build",
        ),
    ],
)
def test_a_library_that_is_missing_or_broken_is_explained(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module], error: Exception, message: str
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(vision, "import_module", fail)
    with pytest.raises(ImportError, match=f"^{make.__name__}:? .*{message}"):
        make()


def test_what_does_not_fit_is_refused() -> None:
    for patch in (0, 5):
        with pytest.raises(ValueError, match=f"vit_tiny: patch must divide the image's 32, got {patch}"):
            vit_tiny(patch=patch)
    with pytest.raises(ValueError, match="norm must be 'group', 'batch' or 'last', got 'layer'"):
        densenet121(norm="layer")
    with pytest.raises(ValueError, match="stem must be 'cifar' or 'imagenet', got 'x'"):
        densenet121(stem="x")
