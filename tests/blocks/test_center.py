"""Filters that remove means, against their sums written out."""

from typing import Any

import pytest
import torch

from undrift.blocks import block_means, center, high_pass_2d
from undrift.core.model.flat_model import Layout, layout_of
from undrift.models import build

LAYOUT = Layout(
    ("conv.weight", "conv.bias", "point.weight", "hidden.weight", "head.weight"),
    ((4, 2, 3, 3), (4,), (6, 4, 1, 1), (5, 30), (3, 5)),
)
"""A convolution, one of single elements, a dense layer that reads six channels of five pixels, and a head."""

V = torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def slowly(tensor: torch.Tensor, groups: list[list[tuple[int, ...]]], share: float = 1.0) -> torch.Tensor:
    out = tensor.clone()
    for group in groups:
        mean = sum(float(tensor[place]) for place in group) / len(group)
        for place in group:
            out[place] -= share * mean
    return out


def test_inputs_is_gradient_centralization() -> None:
    found = LAYOUT.named(center()(V, LAYOUT))
    for name, tensor in LAYOUT.named(V).items():
        axes = tuple(range(1, tensor.dim()))
        expected = tensor - tensor.mean(dim=axes, keepdim=True) if axes else tensor
        torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-14)


@pytest.mark.quick
def test_positions_are_windows_and_pixels() -> None:
    found, given = LAYOUT.named(center("positions", 0.25)(V, LAYOUT)), LAYOUT.named(V)
    windows = [[(o, i, a, b) for a in range(3) for b in range(3)] for o in range(4) for i in range(2)]
    pixels = [[(o, 5 * channel + pixel) for pixel in range(5)] for o in range(5) for channel in range(6)]
    inputs: dict[str, Any] = {"point.weight": [[(o, i, 0, 0) for i in range(4)] for o in range(6)]}
    inputs["head.weight"] = [[(o, i) for i in range(5)] for o in range(3)]
    for name, groups in {"conv.weight": windows, "hidden.weight": pixels, **inputs}.items():
        torch.testing.assert_close(found[name], slowly(given[name], groups, 0.25), rtol=0, atol=1e-14)
    assert torch.equal(found["conv.bias"], given["conv.bias"])


def test_maps_are_positions_of_dense_layers_and_inputs_of_convolutions() -> None:
    found = LAYOUT.named(center("maps")(V, LAYOUT))
    inputs, positions = (LAYOUT.named(center(over)(V, LAYOUT)) for over in ("inputs", "positions"))
    for name in LAYOUT.names:
        assert torch.equal(found[name], (positions if name == "hidden.weight" else inputs)[name])


def test_outputs() -> None:
    found = LAYOUT.named(center("outputs")(V, LAYOUT))
    for name, tensor in LAYOUT.named(V).items():
        expected = tensor if tensor.dim() == 1 else tensor - tensor.mean(dim=0, keepdim=True)
        torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-14)


def test_scope_and_share() -> None:
    assert torch.equal(center(share=0.0)(V, LAYOUT), V)
    found, given = LAYOUT.named(center(scope=("head*",))(V, LAYOUT)), LAYOUT.named(V)
    assert [name for name in given if not torch.equal(found[name], given[name])] == ["head.weight"]
    with pytest.raises(ValueError, match="leave order out"):
        center(order="3210")


def test_small_windows_equal_the_two_dimensional_filter() -> None:
    kernels = Layout(("conv.weight",), ((4, 2, 3, 3),))
    v = V[: kernels.size]
    torch.testing.assert_close(center("positions")(v, kernels), high_pass_2d(0.05)(v, kernels), rtol=0, atol=1e-14)


def test_the_small_cnn_has_pixels_behind_its_convolutions() -> None:
    layout = layout_of(build("small-cnn", classes=10, channels=1, image=28))
    v = torch.ones(layout.size).cumsum(0)
    hidden = layout.named(center("positions")(v, layout))["hidden.weight"]
    assert float(hidden.view(128, 32, 49).mean(dim=2).abs().max()) < 1e-2 < float(hidden.abs().max())


def test_blocks_of_neighbours() -> None:
    layout = Layout(("a", "b"), ((11,), (4,)))
    v = torch.arange(15.0, dtype=torch.float64)
    expected = [-1.5, -0.5, 0.5, 1.5] * 2 + [-1.0, 0.0, 1.0] + [11.0, 12.0, 13.0, 14.0]
    assert block_means(4)(v, layout).tolist() == expected
