"""Flips and crops with arguments: what they do to images, how they are written, and what is refused."""

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from undrift.data import Augment

IMAGES = torch.randint(1, 256, (2000, 2, 6, 6), generator=Generator().manual_seed(4), dtype=torch.uint8)


def augmented(text: str, mean: tuple[float, ...] = ()) -> Tensor:
    return Augment.parse(text)(IMAGES, Generator().manual_seed(0), mean)


def same(images: Tensor, others: Tensor) -> Tensor:
    """Which images are equal."""
    return (images == others).flatten(1).all(1)


@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
def test_a_share_is_mirrored(share: float) -> None:
    out = augmented(f"flip(probability={share})")
    mirrored = same(out, IMAGES.flip(3))
    assert bool((mirrored | same(out, IMAGES)).all())
    assert abs(float(mirrored.double().mean()) - share) < 0.04


@pytest.mark.parametrize("padding", [1, 2])
def test_a_share_is_cropped_by_the_padding(padding: int) -> None:
    out, padded = augmented(f"crop(padding={padding}, probability=0.5)"), pad(IMAGES, [padding] * 4)
    cuts = [padded[:, :, i : i + 6, j : j + 6] for i in range(2 * padding + 1) for j in range(2 * padding + 1)]
    found = torch.stack([same(out, cut) for cut in cuts])
    assert bool(found.any(0).all())
    shares = found.double().mean(1)  # each offset of a crop in half of the images, the middle also in the other half
    middle = len(cuts) // 2
    expected = torch.full((len(cuts),), 0.5 / len(cuts), dtype=torch.float64)
    expected[middle] += 0.5
    assert float((shares - expected).abs().max()) < 0.04


def test_padding_has_the_colour_of_the_mean() -> None:
    out, black = augmented("crop(fill='mean')", (0.25, 0.75)), augmented("crop")
    border = black == 0
    assert bool(border.any()) and torch.equal(out[~border], black[~border])
    for channel, byte in enumerate((64, 191)):  # 63.75 and 191.25
        assert set(out[:, channel][border[:, channel]].tolist()) == {byte}


def test_defaults_have_the_bits_they_always_had() -> None:
    """Draws as before arguments existed: offsets, then one bit for every image."""
    draw = Generator().manual_seed(0)
    top, left = torch.randint(9, (2, 2000, 1), generator=draw)
    mirrored = torch.randint(2, (2000, 1), generator=draw, dtype=torch.bool)
    padded = pad(IMAGES, [4] * 4)
    for text in ("flip+crop", "flip(probability=0.5)+crop(padding=4, probability=1)"):
        for n, image in enumerate(augmented(text)[:50]):
            cut = padded[n, :, int(top[n]) : int(top[n]) + 6, int(left[n]) : int(left[n]) + 6]
            assert torch.equal(image, cut.flip(2) if mirrored[n] else cut)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("none", "none"),
        ("crop", "crop"),
        ("crop + flip", "flip+crop"),
        ("flip(0.5)+crop(4, 1)", "flip+crop"),
        ("flip(probability=0.3)", "flip(probability=0.3)"),
        ("flip+crop(probability=0.5, padding=8)", "flip+crop(padding=8, probability=0.5)"),
        ("crop(fill='mean')", "crop(fill='mean')"),
    ],
)
def test_it_is_written_in_one_form(text: str, written: str) -> None:
    augment = Augment.parse(text)
    assert str(augment) == written and Augment.parse(written) == augment


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rotate", r"got 'rotate'; the arguments are flip\(probability: float = 0.5\), crop\(padding: int = 4"),
        ("flip+", '"flip", "crop" or "flip\\+crop", got'),
        ("", "got ''"),
        ("flip+flip", "got 'flip\\+flip'"),
        ("crop(", "got 'crop\\('"),
        ("crop(size=3)", "unexpected keyword argument 'size'; it takes padding: int = 4, probability"),
        ("crop(padding=1.5)", "padding must be a whole number, got 1.5"),
        ("crop(padding=0)", "padding of a crop must be 1 to 256 pixels, got 0"),
        ("crop(padding=257)", "padding of a crop must be 0 to 256 pixels, got 257"),
        ("crop(probability=0)", "probability of crop must be above 0 and at most 1, got 0"),
        ("flip(probability=1.1)", "probability of flip must be above 0 and at most 1, got 1.1"),
        ("crop(fill='white')", 'fill of crop must be "black" or "mean", got \'white\''),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment.parse(text)
