"""Corruptions: their formulas, the same result in any batch, and who gets which."""

from io import BytesIO

import numpy as np
import pytest

from support.corruption import COLOUR, GREY, KEYS
from undrift.data.distortion.tools import blur, disk, equalise, plasma, sample, smear, zoom
from undrift.data.partitions.draw import partition
from undrift.data.tasks.corruption import (
    KINDS,
    STANDARD,
    assign,
    client_kinds,
    corrupt,
    corrupted,
    own_kinds,
    sample_keys,
)

pytest.importorskip("PIL")
RANDOM = {"gaussian-noise", "shot-noise", "impulse-noise", "glass-blur", "motion-blur", "snow", "fog", "elastic"}
RANDOM |= {"speckle-noise", "spatter"}


CASES = [pytest.param(kind, COLOUR, id=f"{kind}-colour") for kind in KINDS]
CASES += [pytest.param(kind, GREY, id=f"{kind}-grey") for kind in KINDS if kind != "saturate"]


def spread_error(images: np.ndarray, kind: str) -> np.ndarray:
    """What a kind adds to images that are far from black and white, in [0, 1]."""
    return corrupt(images, kind, sample_keys(1, np.arange(len(images)))) / 255.0 - images / 255.0


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("kind", "images"), CASES)
def test_images_change_and_stay_recognisable(kind: str, images: np.ndarray) -> None:
    before = images.copy()
    out = corrupt(images, kind, KEYS)
    assert out.shape == images.shape and out.dtype == np.uint8 and np.array_equal(images, before)
    assert np.array_equal(out, corrupt(images, kind, KEYS))
    change = np.abs(out.astype(float) - images).mean(axis=(1, 2, 3))
    assert change.mean() > 0.5
    alike = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(images, out, strict=True)]
    assert min(alike) > 0.5 and np.mean(alike) > 0.75
    other = corrupt(images, kind, sample_keys(1, np.arange(40)))
    assert np.array_equal(out, other) == (kind not in RANDOM)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize(("kind", "images"), CASES)
def test_a_result_does_not_depend_on_the_batch(kind: str, images: np.ndarray) -> None:
    whole = corrupt(np.concatenate([images] * 8), kind, np.concatenate([KEYS] * 8))  # more than one chunk
    assert np.array_equal(whole[:40], whole[-40:])
    some = [31, 4, 17]
    assert np.array_equal(corrupt(images[some], kind, KEYS[some]), whole[some])
    for i in (0, 39):
        assert np.array_equal(corrupt(images[i : i + 1], kind, KEYS[i : i + 1])[0], whole[i])


def test_noise_is_as_strong_as_it_says() -> None:
    grey = np.full((60, 3, 32, 32), 128, np.uint8)
    gauss = spread_error(grey, "gaussian-noise")
    assert gauss.std() == pytest.approx(0.08, rel=0.01) and abs(gauss.mean()) < 1e-3
    for level in (50, 128, 180):
        shot = spread_error(np.full_like(grey, level), "shot-noise")
        assert shot.std() == pytest.approx((level / 255 / 100) ** 0.5, rel=0.02) and abs(shot.mean()) < 1e-3
    out = corrupt(grey, "impulse-noise", sample_keys(0, np.arange(60)))
    assert set(np.unique(out)) == {0, 128, 255}
    assert np.mean(out == 0) == pytest.approx(0.015, rel=0.05) and np.mean(out == 255) == pytest.approx(0.015, rel=0.05)


def test_contrast_and_brightness_are_their_formulas() -> None:
    x = COLOUR.astype(np.float64)
    mean = x.mean(axis=(2, 3), keepdims=True)
    assert np.abs(corrupt(COLOUR, "contrast", KEYS) - (0.4 * (x - mean) + mean)).max() <= 0.501
    wanted = np.minimum(GREY + 0.15 * 255, 255)
    assert np.abs(corrupt(GREY, "brightness", KEYS) - wanted).max() <= 0.501
    from colorsys import hsv_to_rgb, rgb_to_hsv

    out = corrupt(COLOUR[:1], "brightness", KEYS[:1])[0].reshape(3, -1).T
    for pixel, got in zip(COLOUR[0].reshape(3, -1).T[::37], out[::37], strict=True):
        hue, saturation, value = rgb_to_hsv(*(pixel / 255.0))
        assert np.abs(np.array(hsv_to_rgb(hue, saturation, min(1, value + 0.15))) * 255 - got).max() <= 0.51
    black = np.zeros((1, 3, 32, 32), np.uint8)
    assert np.all(corrupt(black, "brightness", [0]) == round(0.15 * 255))


def test_jpeg_and_pixelate_are_those_of_pil() -> None:
    image = pytest.importorskip("PIL.Image")
    for images in (COLOUR, GREY):
        for i in range(3):
            own = image.fromarray(images[i].transpose(1, 2, 0).squeeze())
            file = BytesIO()
            own.save(file, "JPEG", quality=58)
            size = own.size[0]
            small = own.resize((int(size * 0.85),) * 2, image.Resampling.BOX).resize((size, size), image.Resampling.BOX)
            for kind, wanted in (("jpeg", image.open(file)), ("pixelate", small)):
                got = corrupt(images[i : i + 1], kind, [0])[0].transpose(1, 2, 0).squeeze()
                assert np.array_equal(got, np.asarray(wanted)), kind


def test_blurs_keep_flat_images_and_spread_points() -> None:
    flat = np.full((4, 3, 32, 32), 90, np.uint8)
    for kind in ("defocus-blur", "glass-blur", "motion-blur", "zoom-blur", "elastic", "pixelate"):
        assert np.abs(corrupt(flat, kind, np.arange(4)).astype(int) - 90).max() <= 1, kind
    point = np.zeros((8, 1, 33, 33), np.uint8)
    point[:, :, 16, 16] = 255
    side, middle = np.exp(-1 / 0.72) / (1 + 2 * np.exp(-1 / 0.72)), 1 / (1 + 2 * np.exp(-1 / 0.72))
    out = corrupt(point, "defocus-blur", np.arange(8))[0, 0]
    assert out[16, 16] == round(255 * middle**2) and out[15, 17] == round(255 * side**2) and (out > 0).sum() == 9
    for smeared in corrupt(point, "motion-blur", np.arange(8))[:, 0]:
        rows, columns = np.nonzero(smeared)
        taps = np.exp(-(np.arange(13) ** 2) / 8)
        assert smeared[16, 16] == round(255 / taps.sum()) and columns.max() == 16 and 16 - columns.min() >= 4
        assert np.abs(rows - 16).max() <= 16 - columns.min() and abs(int(smeared.sum()) - 255) <= 8


def test_the_tools_of_the_corruptions() -> None:
    ramp = np.broadcast_to(np.arange(32, dtype=np.float32), (2, 1, 32, 32))
    assert np.allclose(zoom(ramp, 1.0), ramp)
    assert np.allclose(zoom(ramp, 2.0), 15.5 + (ramp - 15.5) / 2, atol=1e-5)  # a line stays one
    grid = np.stack(np.meshgrid(np.arange(32), np.arange(32), indexing="ij")).astype(np.float32)
    assert np.array_equal(sample(ramp, np.stack([grid, grid])), ramp)
    moved = sample(ramp, np.stack([grid, grid + np.float32(0.25)]))
    assert np.allclose(moved[1, 0, :, :31], ramp[1, 0, :, :31] + 0.25) and np.array_equal(moved[0], ramp[0])
    mirrored = sample(ramp, np.stack([grid - 3, grid - np.float32(3)]))
    assert mirrored[1, 0, 0, :4].tolist() == [2, 1, 0, 0]
    assert np.allclose(blur(ramp, 1.0, 3)[:, :, :, 3:-3], ramp[:, :, :, 3:-3], atol=1e-4)
    clouds = plasma(np.random.default_rng(0).uniform(-1, 1, (5, 32, 32)).astype(np.float32), 2.5)
    assert clouds.min() == 0 and clouds.max() == 1
    steps = np.abs(np.diff(clouds, axis=2, append=clouds[:, :, :1])).max()  # smooth, also around the torus
    assert steps < 0.35
    point = np.zeros((1, 1, 9, 9), np.float32)
    point[0, 0, 4, 4] = 45
    assert disk(point, 1)[0, 0, 3:6, 3:6].tolist() == [[0, 9, 0], [9, 9, 9], [0, 9, 0]]
    assert disk(point, 1.5)[0, 0, 3:6, 3:6].tolist() == [[5, 5, 5]] * 3 and blur(point, 0.05) is point
    assert np.count_nonzero(smear(point, np.array([90.0]), 2, 2)[0, 0, :, 4]) == 5  # one half, along the columns
    assert equalise(np.array([[7, 7], [8, 9]], np.uint8)).tolist() == [[0, 0], [128, 255]]
    assert equalise(np.full((2, 2), 7, np.uint8)).tolist() == [[7, 7], [7, 7]]


def test_clients_have_two_or_three_kinds() -> None:
    chosen = [client_kinds(i, seed=0) for i in range(2000)]
    assert all(len(set(kinds)) == len(kinds) and set(kinds) <= set(STANDARD) for kinds in chosen)
    assert {len(kinds) for kinds in chosen} == {2, 3}
    assert np.mean([len(kinds) for kinds in chosen]) == pytest.approx(2.5, abs=0.05)
    counts = np.array([sum(kind in kinds for kinds in chosen) for kind in STANDARD])
    assert len(STANDARD) == 14 and np.abs(counts / (2000 * 2.5 / 14) - 1).max() < 0.2
    assert chosen[:50] != [client_kinds(i, seed=1) for i in range(50)]
    assert {client_kinds(i, 0, ("snow",)) for i in range(20)} == {("snow",)}
    assert {frozenset(client_kinds(i, 0, ("snow", "fog"))) for i in range(20)} == {frozenset({"snow", "fog"})}
    mine = own_kinds(3, np.arange(500), seed=0)
    assert set(mine.tolist()) == set(chosen[3]) and np.array_equal(mine[[7, 2]], own_kinds(3, [7, 2], seed=0))


def test_each_sample_gets_one_of_its_clients_kinds() -> None:
    labels = np.arange(9000) % 10
    p = partition("corrupt,over=longtail:10,over=dirichlet-client:0.5", labels, clients=20, seed=2)
    kinds = assign(p, seed=2)
    assert np.all((kinds == "") == (p.uses == 0)) and np.array_equal(kinds, assign(p, seed=2))
    for client, own in enumerate(p.clients):
        found, counts = np.unique(kinds[own], return_counts=True)
        assert set(found.tolist()) == set(client_kinds(client, seed=2))
        assert counts.min() > 0.6 * len(own) / len(found)
    few = partition("corrupt,types=fog+spatter,severity=2", labels, 20)
    assert set(assign(few, seed=2).tolist()) == {"fog", "spatter"}
    with pytest.raises(ValueError, match=r"clients of dirichlet-client\(0\.1, refill=True\) share samples"):
        assign(partition("dirichlet-client:0.1,refill=true", labels, 20), seed=2)


@pytest.mark.quick
def test_a_data_set_is_corrupted_sample_by_sample() -> None:
    kinds = np.array([*KINDS, "", "snow"] * 3)[:40]
    out = corrupted(COLOUR, kinds, seed=0)
    for i, kind in enumerate(kinds.tolist()):
        alone = corrupt(COLOUR[i : i + 1], kind, KEYS[i : i + 1])[0] if kind else COLOUR[i]
        assert np.array_equal(out[i], alone)


def test_keys_differ() -> None:
    keys = sample_keys(3, np.arange(100_000))
    assert len(np.unique(keys)) == 100_000 and keys.dtype == np.uint64
    assert np.array_equal(sample_keys(3, [7, 5]), keys[[7, 5]])
    assert not np.isin(sample_keys(4, np.arange(1000)), keys).any()
    assert np.mean(keys % np.uint64(3) == 0) == pytest.approx(1 / 3, abs=0.01)
    bits = np.unpackbits(keys.view(np.uint8)).mean()
    assert bits == pytest.approx(0.5, abs=0.001)


def test_what_cannot_be_corrupted_is_refused() -> None:
    with pytest.raises(ValueError, match="frost needs photographs of ice, which are not included; choose from"):
        corrupt(COLOUR, "frost", KEYS)
    with pytest.raises(ValueError, match="no corruption is named 'rain'; known are gaussian-noise, "):
        corrupt(COLOUR, "rain", KEYS)
    with pytest.raises(ValueError, match="severity must be a whole number from 1 to 5, got 0"):
        corrupt(COLOUR, "snow", KEYS, severity=0)
    with pytest.raises(ValueError, match="saturate changes colours, but these images are grey; name the others"):
        corrupt(GREY, "saturate", KEYS)
    with pytest.raises(ValueError, match=r"at least 8 rows and columns, because .* got 7 x 32; scale the images up"):
        corrupt(COLOUR[:, :, :7], "snow", KEYS)
    with pytest.raises(ValueError, match=r"images must be uint8 .* got float64 of shape \(40, 3, 32, 32\)"):
        corrupt(COLOUR / 255, "snow", KEYS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"1 or 3 channels, rows, columns\), got uint8 of shape \(40, 32, 32, 3\)"):
        corrupt(COLOUR.transpose(0, 2, 3, 1), "snow", KEYS)
    with pytest.raises(ValueError, match=r"40 images need as many keys, got shape \(3,\)"):
        corrupt(COLOUR, "snow", KEYS[:3])
