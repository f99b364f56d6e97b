"""The models: their sizes, their outputs, their initial weights, and that they live in a vector."""

import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from undrift import Simulation, make
from undrift.blocks.personalization import Private
from undrift.core.model.flat_model import bind
from undrift.core.records.types import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.models import CNN5, INPUTS, MODELS, CharLSTM, SmallCNN, build, head, resnet, resnet18
from undrift.models.layers import norm, stem

EXTRA = ("densenet121", "vit-tiny")
IMAGE = [name for name, reads in INPUTS.items() if reads == "image" and name not in EXTRA]
OWN = [*IMAGE, "lstm"]
FAST = [name for name in OWN if name not in ("resnet18", "resnet18-bn", "resnet18-imagenet-bn")]
SHAPES = [(2, 16), (1, 28), (3, 32), (3, 64)]
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "models.md"


def own(name: str) -> Callable[[], nn.Module]:
    """The model for 10 classes of 32 x 32 colour images, or for 80 symbols."""
    text = INPUTS[name] == "text"
    return partial(build, name, classes=80 if text else 10, symbols=80 if text else None)


def inputs(name: str, batch: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    if INPUTS[name] == "text":
        return torch.randint(0, 80, (batch, 12), generator=generator)
    return torch.randn(batch, 3, 32, 32, generator=generator)


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def row(name: str) -> tuple[str, ...]:
    """What docs/guide/models.md says of a model: what it reads, its parameters, its last linear layer."""
    found = re.search(rf"^\| `{name}` \| (\w+) \| ([\d,]+) \| `([^`]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert found is not None, f"docs/guide/models.md lacks {name}"
    return found.groups()


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


def test_cnn5_has_the_layers_that_fedfsa_has_for_each_image() -> None:
    fashion = linear(25, 4) + linear(25 * 4, 12) + linear(192, 1024) + linear(1024, 1024) + linear(1024, 10)
    assert size(CNN5(10, 1, 28)) == fashion == 1_258_798
    tiny = linear(25 * 3, 32) + linear(25 * 32, 32) + linear(5408, 512) + linear(512, 1024) + linear(1024, 200)
    assert size(CNN5(200, 3, 64)) == tiny == 3_527_784
    assert CNN5(image=28, widths=(64, 64, 8, 9)).classifier[0].weight.shape == (8, 64 * 4 * 4)
    assert CNN5(image=16).classifier[0].weight.shape == (1024, 64)


@pytest.mark.parametrize(
    ("image", "channels", "expected"), [(28, 1, 206_922), (32, 3, 268_650), (64, 3, 1_055_082), (4, 1, 10_314)]
)
def test_small_cnn_size(image: int, channels: int, expected: int) -> None:
    convolutions = linear(9 * channels, 16) + linear(9 * 16, 32)
    counted = convolutions + linear(32 * (image // 4) ** 2, 128) + linear(128, 10)
    assert size(SmallCNN(10, channels, image)) == counted == expected


@pytest.mark.quick
@pytest.mark.parametrize(
    ("depth", "width", "classes", "expected"),
    [(8, 1, 10, 78_042), (20, 1, 10, 272_474), (20, 1, 100, 278_324), (56, 2, 10, 3_407_898)],
)
def test_resnet_size(depth: int, width: int, classes: int, expected: int) -> None:
    model = resnet(depth, classes, width=width)
    assert bind(model).layout.size == residual(depth, width, classes) == expected
    main = [m for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in name]
    assert len(main) == depth


@pytest.mark.parametrize("kind", ["group", "batch"])
def test_resnet18_size(kind: str) -> None:
    """torchvision's ResNet-18 has 11,181,642 parameters with 10 outputs; a 3 x 3 stem saves 64 x 3 x 40 of them."""
    model = resnet18(norm=kind, stem="imagenet")
    assert size(model) == 11_181_642
    assert size(resnet18(norm=kind)) == 11_181_642 - 64 * 3 * (49 - 9) == 11_173_962
    norms = {type(m) for m in model.modules() if isinstance(m, nn.GroupNorm | nn.BatchNorm2d)}
    assert norms == {nn.GroupNorm if kind == "group" else nn.BatchNorm2d}
    assert (len(bind(model).buffers) > 0) == (kind == "batch")


@pytest.mark.parametrize(("symbols", "published"), [(80, 817_872), (90, 820_522)])
def test_lstm_size(symbols: int, published: int) -> None:
    """TensorFlow's layers have one bias of 4 x 256: LEAF's alphabet, and that of Reddi et al. (820,522 parameters)."""
    layers = 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1)
    assert 8 * symbols + layers + linear(256, symbols) == published
    assert bind(CharLSTM(symbols)).layout.size == published + 2 * 4 * 256
    small = 4 * 16 * (8 + 16 + 2) + 4 * 16 * (16 + 16 + 2)
    model = build("lstm", classes=symbols, symbols=symbols, hidden=16)
    assert bind(model).layout.size == 8 * symbols + small + linear(16, symbols)


@pytest.mark.sweep(every=3)
@pytest.mark.quick
@pytest.mark.parametrize("name", IMAGE)
@pytest.mark.parametrize(("channels", "image"), SHAPES)
def test_output(name: str, channels: int, image: int) -> None:
    model = seeded(partial(build, name, classes=7, channels=channels, image=image), 0)
    out = model(torch.randn(2, channels, image, image, generator=torch.Generator().manual_seed(1)))
    assert out.shape == (2, 7)
    assert out.isfinite().all()


@pytest.mark.quick
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8])
def test_the_lstm_reads_integers(kind: torch.dtype) -> None:
    model, text = seeded(CharLSTM, 0), inputs("lstm")
    out = model(text.to(kind))
    assert out.shape == (4, 80) and torch.equal(out, model(text))
    assert not torch.equal(out, model(text.roll(1, dims=1)))  # it reads the order
    assert build("lstm", classes=5, symbols=30)(text % 30).shape == (4, 5)


@pytest.mark.parametrize("name", FAST)
def test_same_weights_under_the_same_seed(name: str) -> None:
    first, again, other = (bind(seeded(own(name), seed)).w for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("name", FAST)
def test_a_model_placed_elsewhere_is_the_model_there(name: str) -> None:
    """Loss and gradient at w + offset are those of a new model with these weights: no layer keeps old tensors."""
    bound, fresh = (bind(seeded(own(name), seed).eval()) for seed in (1, 2))  # where none draws noise
    point = bound.w + 0.01 * torch.randn(bound.layout.size, generator=torch.Generator().manual_seed(1))
    before = bound.w.clone()
    bound.place(point)
    fresh.w.copy_(point)
    x = inputs(name)
    there, expected = bound.module(x).square().mean(), fresh.module(x).square().mean()
    assert torch.equal(there, expected)
    assert torch.equal(bound.gradient(there), fresh.gradient(expected))
    bound.place(bound.w)
    bound.check()
    assert torch.equal(bound.w, before) and not torch.equal(bound.module(x).square().mean(), there)


@pytest.mark.parametrize("name", FAST)
def test_every_parameter_learns(name: str) -> None:
    bound = bind(seeded(own(name), 0))
    gradient = bound.gradient(bound.module(inputs(name)).square().sum())
    assert all(tensor.abs().sum() > 0 for tensor in bound.layout.split(gradient))


def test_small_cnn_reads_either_order_of_the_elements() -> None:
    model: Any
    model, images = seeded(SmallCNN, 0), torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    other = images.to(memory_format=torch.channels_last)
    assert torch.equal(model(images), model(other))
    convolved = model.features(images)
    torch.testing.assert_close(model.features(other), convolved)


@pytest.mark.sweep(every=4)
def test_the_lstm_learns_to_repeat() -> None:
    """Three clients with symbols of their own; FedSAM moves the weights away and back at each step."""
    text = torch.arange(12)[:, None].repeat(1, 4)
    task = TensorTask(partial(CharLSTM, 12), text, text[:, -1], [torch.arange(i, 12, 3) for i in range(3)])
    state = Simulation(make("fedsam", rho=0.01), task, Local(lr=2.0, batch_size=4, epochs=2)).run(rounds=12)
    bound = bind(task.model())
    assert cross_entropy(bound.module(text), text[:, -1]) > 2.4
    bound.place(state.params)
    assert cross_entropy(bound.module(text), text[:, -1]) < 0.8


def test_norms_have_the_groups_asked_for() -> None:
    norms = [m for m in resnet(8, groups=4).modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 9
    assert {m.num_groups for m in norms} == {4}
    assert not any(isinstance(m, nn.BatchNorm2d) for m in resnet().modules())
    assert sum(isinstance(m, nn.BatchNorm2d) for m in resnet(8, norm="batch").modules()) == 9


def test_batch_norm_over_one_pixel_refuses_one_example() -> None:
    model = build("resnet18-imagenet-bn", classes=10)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(torch.zeros(1, 3, 32, 32))
    assert build("resnet18-imagenet", classes=10)(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize("depth", [2, 18, 21])
def test_resnet_refuses_other_depths(depth: int) -> None:
    with pytest.raises(ValueError, match="depth must be 6 n \\+ 2"):
        resnet(depth)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: resnet(width=0), "resnet: width must be 1 or more, got 0"),
        (lambda: resnet(norm="layer"), "norm must be 'group' or 'batch', got 'layer'"),
        (lambda: resnet(8, groups=3), "norm: 16 channels cannot be split into 3 groups; choose a divisor"),
        (lambda: norm("group", 0), "norm: groups must be 1 or more, got 0"),
        (lambda: resnet18(stem="mnist"), "stem must be 'cifar' or 'imagenet', got 'mnist'"),
        (lambda: stem("", 3, 64), "stem must be 'cifar' or 'imagenet', got ''"),
        (lambda: CNN5(image=15), "CNN5: image must be 16 or more, got 15; try 'resnet8'"),
        (lambda: SmallCNN(image=3), "SmallCNN: image must be 4 or more, got 3; try 'resnet8'"),
        (lambda: build("resnet-20", classes=10), "no model is named 'resnet-20'; did you mean 'resnet20'?"),
        (lambda: build("bert", classes=10), "no model is named 'bert'; known are small-cnn, cnn, resnet8"),
        (
            lambda: build("lstm", classes=10),
            "model 'lstm' reads text data and these are image data; try 'small-cnn'",
        ),
        (
            lambda: build("cnn", classes=80, symbols=80),
            "model 'cnn' reads image data and these are text data; try 'lstm'",
        ),
        (lambda: build("cnn", classes=0), "model 'cnn': classes must be 1 or more, got 0"),
        (lambda: head(nn.ReLU()), "head: ReLU has no linear layer; name the private tensors yourself"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        wrong()


def test_the_table_says_what_each_model_reads() -> None:
    assert list(INPUTS) == list(MODELS)
    assert [name for name, reads in INPUTS.items() if reads == "text"] == ["lstm"]


def test_a_model_by_name_travels_to_a_worker() -> None:
    make = pickle.loads(pickle.dumps(partial(build, "resnet8", classes=4, channels=1)))
    assert torch.equal(bind(seeded(make, 2)).w, bind(seeded(lambda: resnet(8, 4, channels=1), 2)).w)


@pytest.mark.parametrize("name", FAST)
def test_the_head_can_be_private(name: str) -> None:
    """The tensors of the head are the last of the model, and as many as its outputs need."""
    bound = bind(own(name)())
    last = bound.layout.shapes[-2]
    private = ~Private(head(bound.module)).shared(bound.layout)  # type: ignore[operator]
    assert private.sum() == linear(last[1], last[0])
    assert private[-int(private.sum()) :].all()
    assert head(nn.Linear(2, 2)) == ("*",)


@pytest.mark.parametrize("name", OWN)
def test_the_page_tells_the_truth(name: str) -> None:
    model = own(name)() if name != "small-cnn" else SmallCNN()
    assert row(name) == (INPUTS[name], f"{size(model):,}", *head(model))


class Tied(nn.Module):
    """Its last layer is known under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.decoder = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.decoder.weight = self.embed.weight


def test_a_head_with_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no parameter is named 'decoder.\*'; name the private ones yourself"):
        head(Tied())


def test_gradients_of_single_images_are_those_of_the_batch() -> None:
    """Under vmap, as for private examples and for clients that are trained together, tensors have no memory format."""
    model = build("small-cnn", classes=10, channels=1, image=8)
    images, labels = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(model, values, (image.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(logits, label.unsqueeze(0))

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(values, images, labels)
    whole = torch.autograd.grad(torch.nn.functional.cross_entropy(model(images), labels), list(model.parameters()))
    for name, slope in zip(values, whole, strict=True):
        torch.testing.assert_close(each[name].mean(0), slope)
