"""Corruptions at severity 1 to 5, the four extra types, and the names of types."""

from colorsys import hsv_to_rgb, rgb_to_hsv

import numpy as np
import pytest

from support.corruption import COLOUR, KEYS, textures
from undrift.data.distortion.kinds import check_images, elastic, kind_name, kinds_text, parse_kinds
from undrift.data.partitions.draw import parse
from undrift.data.partitions.schemes import Corrupt
from undrift.data.tasks.corruption import KINDS, STANDARD, corrupt, sample_keys

pytest.importorskip("PIL")
UNEVEN = {
    "glass-blur": ((1, 4), (2, 4), (3, 5)),  # a wider blur smooths what the swaps have mixed
    "elastic": (),  # the affine part, which moves most pixels, shrinks as the warps grow
    "spatter": ((1, 2), (2, 3), (4, 5)),  # water, then mud
    "saturate": ((1, 2), (3, 4), (4, 5)),  # less colour, then more
}
"""Kinds whose published constants do not increase the distance from each severity to the next -> where they do."""


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_severity_is_further_from_the_original(kind: str) -> None:
    colour, grey = textures(40, 3, 32), textures(40, 1, 28)
    for images in (colour, grey) if kind != "saturate" else (colour,):
        out = [corrupt(images, kind, KEYS, severity) for severity in range(1, 6)]
        assert all(x.shape == images.shape and x.dtype == np.uint8 for x in out)
        assert np.array_equal(out[2], corrupt(images, kind, KEYS))  # 3 is the default
        assert np.array_equal(out[4], corrupt(images, kind, KEYS, 5))
        away = [np.sqrt(((x.astype(float) - images) ** 2).mean()) for x in out]
        assert away[0] > 0.5
        for low, high in UNEVEN.get(kind, ((1, 2), (2, 3), (3, 4), (4, 5))):
            slack = 0.01 if kind == "motion-blur" else 0  # radius 6 and 8 differ in taps that are almost 0
            assert away[high - 1] > away[low - 1] - slack, (kind, low, high)


def test_warps_grow_without_the_affine_part() -> None:
    x = COLOUR.astype(np.float32) / 255
    away = []
    for amount, sigma, _ in KINDS["elastic"].levels:
        draws = [np.random.default_rng(i) for i in range(len(x))]
        away.append(np.abs(elastic(x, draws, amount, sigma, 0) - x).mean())  # type: ignore[arg-type]
    assert away[0] == 0 and away == sorted(away) and away[4] > away[1] > 0


def test_every_kind_has_five_levels_of_its_arguments() -> None:
    for kind, (change, levels) in KINDS.items():
        arguments = change.__code__.co_argcount - 2
        assert len(levels) == 5 and {len(level) for level in levels} == {arguments}, kind
    assert len(KINDS) == 18 and set(KINDS) - set(STANDARD) == {"speckle-noise", "gaussian-blur", "spatter", "saturate"}


def test_speckle_noise_grows_with_the_value() -> None:
    for level in (60, 120):
        flat = np.full((60, 3, 32, 32), level, np.uint8)
        noise = corrupt(flat, "speckle-noise", sample_keys(0, np.arange(60)), 5) / 255 - level / 255
        assert noise.std() == pytest.approx(0.2 * level / 255, rel=0.02)
    assert not corrupt(np.zeros((1, 1, 28, 28), np.uint8), "speckle-noise", [1], 5).any()


def test_gaussian_blur_spreads_a_point() -> None:
    point = np.zeros((1, 1, 33, 33), np.uint8)
    point[:, :, 16, 16] = 255
    out = corrupt(point, "gaussian-blur", [0], 5)[0, 0]
    taps = np.exp(-(np.arange(-4, 5) ** 2) / 2)
    assert np.abs(out[12:21, 12:21] - 255 * np.outer(taps, taps) / taps.sum() ** 2).max() <= 0.501


@pytest.mark.parametrize(("severity", "factor", "more"), [(1, 0.3, 0), (3, 1.5, 0), (5, 2.5, 0.2)])
def test_saturate_is_that_of_hsv(severity: int, factor: float, more: float) -> None:
    images = COLOUR[:2].copy()
    images[0, :, 0, :3] = [[0, 80, 255]] * 3  # black, grey and white
    out = corrupt(images, "saturate", KEYS[:2], severity)
    for before, after in zip(images, out, strict=True):
        for pixel, got in zip(before.reshape(3, -1).T[::3], after.reshape(3, -1).T[::3], strict=True):
            hue, saturation, value = rgb_to_hsv(*(pixel / 255.0))
            wanted = hsv_to_rgb(hue, min(1.0, saturation * factor + more), value)
            assert np.abs(np.array(wanted) * 255 - got).max() <= 0.51


def test_spatter_adds_water_and_covers_with_mud() -> None:
    dark = np.full((40, 3, 32, 32), 40, np.uint8)
    water, mud = (corrupt(dark, "spatter", KEYS, severity).astype(int) for severity in (3, 5))
    assert water.min() == 40 and 40 + 0.4 * 238 < water.max() <= 40 + 0.5 * 238 + 1
    wet = (water != 40).any(1)
    assert 0.05 < wet.mean() < 0.7
    assert np.all(np.diff(water, axis=1)[:, 0][wet] >= 0)  # more green than red: turquoise
    covered = mud.transpose(0, 2, 3, 1)[(mud != 40).any(1)]
    assert np.abs(covered.max(0) - [63, 42, 24]).max() <= 1 and np.abs(covered.min(0) - [58, 42, 20]).max() <= 1
    grey = corrupt(np.full((40, 1, 28, 28), 40, np.uint8), "spatter", KEYS, 3)
    assert grey.shape == (40, 1, 28, 28) and grey.max() > 80
    still = corrupt(np.full((1, 3, 8, 8), 40, np.uint8), "spatter", [0], 1)  # hardly a drop in so few pixels
    assert still.shape == (1, 3, 8, 8)


def test_names_of_types() -> None:
    assert kind_name("elastic_transform") == "elastic" and kind_name("gaussian_blur") == "gaussian-blur"
    assert parse_kinds("standard") == STANDARD and parse_kinds("all") == tuple(KINDS)
    assert parse_kinds("saturate+snow+snow") == ("snow", "saturate")
    assert kinds_text(parse_kinds("standard+spatter")).endswith("jpeg+spatter")
    assert kinds_text(tuple(KINDS)) == "all" and kinds_text(STANDARD) == "standard"
    with pytest.raises(ValueError, match="no corruption is named ''"):
        parse_kinds("snow+")
    check_images(STANDARD, (1, 28, 28))
    with pytest.raises(ValueError, match=r"1 or 3 channels, rows and columns, got the shape \(80,\)"):
        check_images(STANDARD, (80,))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("corrupt", "corrupt"),
        ("corrupt,severity=3", "corrupt"),
        ("corrupt,types=standard", "corrupt"),
        ("corrupt,types=jpeg_compression+snow,severity=5", "corrupt(severity=5, types='snow+jpeg')"),
        ("corrupt,types=all,over=dirichlet:0.1", "corrupt(over=dirichlet(0.1), types='all')"),
        ("corrupt,over=longtail:100,over=iid", "corrupt(over=longtail(100))"),
    ],
)
def test_the_text_of_the_partition(text: str, canonical: str) -> None:
    scheme = parse(text)
    assert str(scheme) == canonical and str(parse(canonical)) == canonical and parse(canonical) == scheme
    assert isinstance(scheme, Corrupt) and scheme.kinds == parse_kinds(scheme.types)


@pytest.mark.parametrize(
    "text", ["corrupt,severity=0", "corrupt,severity=6", "corrupt,severity=2.5", "corrupt,types=2"]
)
def test_texts_that_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"severity must be between 1 and 5|severity must be a whole number|types must be a text"
    ):
        parse(text)
