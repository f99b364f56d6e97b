"""What the fourteen corruptions do to pixels: functions of a batch in [0, 1] and of one generator for each image."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import ndimage

Images = NDArray[np.uint8]
Pixels = NDArray[np.float32]  # images x channels x rows x columns, in [0, 1]
Draws = list[Generator]
GREY = np.array([0.299, 0.587, 0.114], np.float32)
DIAGONAL, ACROSS = ((1, 1), (1, -1), (-1, 1), (-1, -1)), ((1, 0), (-1, 0), (0, 1), (0, -1))


def _gaussian_noise(x: Pixels, draws: Draws) -> Pixels:
    """Normal noise of deviation 0.08."""
    return x + np.float32(0.08) * np.stack([draw.standard_normal(x.shape[1:], np.float32) for draw in draws])


def _shot_noise(x: Pixels, draws: Draws) -> Pixels:
    """Poisson(100 x) / 100."""
    counts = np.stack([draw.poisson(100 * image) for draw, image in zip(draws, x, strict=True)])
    return counts.astype(np.float32) / np.float32(100)


def _impulse_noise(x: Pixels, draws: Draws) -> Pixels:
    """Each value black or white with a chance of 3 % together."""
    chance = np.stack([draw.random(x.shape[1:], np.float32) for draw in draws])
    return np.where(chance < 0.03, (chance < 0.015).astype(np.float32), x)


def _defocus_blur(x: Pixels, _: Draws) -> Pixels:
    """A disk of radius 0.5 is one pixel; what blurs is its alias filter, 3 x 3 of deviation 0.6."""
    return _blur(x, 0.6, 1)


def _glass_blur(x: Pixels, draws: Draws) -> Pixels:
    """Blurred, each inner pixel swapped with one up to a step away, blurred again."""
    n, channels, height, width = x.shape
    steps = np.stack([draw.integers(-1, 2, (2, height, width)) for draw in draws])
    target = np.arange(height * width) + (steps[:, 0] * width + steps[:, 1]).reshape(n, -1)
    place = np.tile(np.arange(height * width), (n, 1))
    each = np.arange(n)
    for here in np.arange(height * width).reshape(height, width)[-2:0:-1, -2:0:-1].ravel():
        there = target[:, here]
        place[each, here], place[each, there] = place[each, there], place[:, here].copy()
    mixed = np.take_along_axis(_blur(x, 0.4, 2).reshape(n, channels, -1), place[:, None], axis=2)
    return _blur(mixed.reshape(x.shape), 0.4, 2)


def _motion_blur(x: Pixels, draws: Draws) -> Pixels:
    """Smeared over radius 6, deviation 2, at an angle within 45 degrees of the rows."""
    return _smear(x, np.array([draw.uniform(-45, 45) for draw in draws]), 6, 2)


def _zoom_blur(x: Pixels, _: Draws) -> Pixels:
    """The mean of the image and its zooms by 1.00, 1.01, ..., 1.15."""
    return (x + sum(_zoom(x, 1 + step / 100) for step in range(16))) / np.float32(17)


def _snow(x: Pixels, draws: Draws) -> Pixels:
    """Whitened; then flakes, the high values of zoomed noise, smeared and added twice, once upside down."""
    noise = np.stack([draw.normal(0.15, 0.3, (1, *x.shape[2:])) for draw in draws]).astype(np.float32)
    flakes = _zoom(noise, 1.75)
    flakes = np.where(flakes < 0.55, np.float32(0), np.minimum(flakes, 1))
    flakes = _smear(flakes, np.array([draw.uniform(-135, -45) for draw in draws]), 10, 4)
    grey = x if x.shape[1] == 1 else sum(share * x[:, i : i + 1] for i, share in enumerate(GREY))
    white = np.float32(0.9) * x + np.float32(0.1) * np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    out: Pixels = white + flakes + flakes[:, :, ::-1, ::-1]
    return out


def _fog(x: Pixels, draws: Draws) -> Pixels:
    """0.75 times a plasma cloud is added, and the result scaled back to the image's maximum."""
    top = x.max(axis=(1, 2, 3), keepdims=True)
    side = 1 << (max(x.shape[2:]) - 1).bit_length()
    cloud = _plasma(np.stack([draw.uniform(-1, 1, (side, side)) for draw in draws]).astype(np.float32), 2.5)
    haze = cloud[:, None, : x.shape[2], : x.shape[3]]
    out: Pixels = (x + np.float32(0.75) * haze) * top / (top + np.float32(0.75))
    return out


def _brightness(x: Pixels, _: Draws) -> Pixels:
    """0.15 more of HSV value: hue and saturation stay, so all channels grow by one factor."""
    value: Pixels = x.max(axis=1, keepdims=True)
    wanted = np.minimum(value + np.float32(0.15), np.float32(1))
    out: Pixels = np.where(value > 0, x * (wanted / np.where(value > 0, value, np.float32(1))), wanted)
    return out


def _contrast(x: Pixels, _: Draws) -> Pixels:
    """0.4 of the distance from each channel's mean."""
    mean: Pixels = x.reshape(*x.shape[:2], -1).mean(axis=2)[:, :, None, None]
    return (x - mean) * np.float32(0.4) + mean


def _elastic(x: Pixels, draws: Draws) -> Pixels:
    """An affine map that moves three points by up to 1.92 pixels, and smooth shifts of up to 2.56, read at once."""
    height, width = x.shape[2:]
    moves = np.stack([draw.uniform(-1.92, 1.92, (3, 2, 1, 1)) for draw in draws]).astype(np.float32)
    noise = np.stack([draw.uniform(-1, 1, (2, height, width)) for draw in draws]).astype(np.float32)
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij")).astype(np.float32)
    down, right = (grid - np.array([height // 2, width // 2]).reshape(2, 1, 1)) / np.float32(min(height, width) // 3)
    by_row, by_column = (moves[:, 1] - moves[:, 2]) / 2, (moves[:, 0] - moves[:, 1]) / 2
    affine = moves[:, 0] + by_row * (down - 1) + by_column * (right - 1)
    return _read(x, grid + affine.astype(np.float32) + np.float32(2.56) * _blur(noise, 1.92, 6))


def _pixelate(x: Pixels, _: Draws) -> Pixels:
    """Resized by a box filter to 0.85 of its size, and back."""
    height, width = x.shape[2:]
    small = (int(width * 0.85), int(height * 0.85))
    return _each(x, lambda image: image.resize(small, 4).resize((width, height), 4))  # 4 is PIL's BOX


def _jpeg(x: Pixels, _: Draws) -> Pixels:
    """JPEG at quality 58."""
    from PIL import Image

    def coded(image: Any) -> Any:
        file = BytesIO()
        image.save(file, "JPEG", quality=58)
        return Image.open(file)

    return _each(x, coded)


KINDS: dict[str, Callable[[Pixels, Draws], Pixels]] = {
    "gaussian-noise": _gaussian_noise,
    "shot-noise": _shot_noise,
    "impulse-noise": _impulse_noise,
    "defocus-blur": _defocus_blur,
    "glass-blur": _glass_blur,
    "motion-blur": _motion_blur,
    "zoom-blur": _zoom_blur,
    "snow": _snow,
    "fog": _fog,
    "brightness": _brightness,
    "contrast": _contrast,
    "elastic": _elastic,
    "pixelate": _pixelate,
    "jpeg": _jpeg,
}
"""Name -> what it does to pixels in [0, 1]."""


def to_bytes(x: Pixels) -> Images:
    """Pixels as bytes, to the nearest."""
    return np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)


def _each(x: Pixels, change: Callable[[Any], Any]) -> Pixels:
    """A change of every image as one of PIL's."""
    from PIL import Image

    grey = x.shape[1] == 1
    rows = to_bytes(x[:, 0] if grey else x.transpose(0, 2, 3, 1))
    changed = np.stack([np.asarray(change(Image.fromarray(row))) for row in rows]).astype(np.float32) / np.float32(255)
    return changed[:, None] if grey else changed.transpose(0, 3, 1, 2)


def _blur(x: Pixels, sigma: float, radius: int) -> Pixels:
    """A Gaussian blur cut off at a radius, over rows and columns; edges are mirrored."""
    out: Pixels = ndimage.gaussian_filter(x, sigma, mode="reflect", radius=radius, axes=(2, 3))
    return out


def _smear(x: Pixels, degrees: NDArray[np.float64], radius: int, sigma: float) -> Pixels:
    """One half of a Gaussian of 2 radius + 1 whole pixels along a line, each image at its own angle."""
    n, channels, height, width = x.shape
    taps = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    flat, out = x.reshape(n, channels, -1), np.zeros_like(x).reshape(n, channels, -1)
    for step, tap in enumerate((taps / taps.sum()).astype(np.float32)):
        down = np.rint(step * np.sin(np.deg2rad(degrees))).astype(np.int64)[:, None]
        right = np.rint(step * np.cos(np.deg2rad(degrees))).astype(np.int64)[:, None]
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + right, 0, width - 1)
        place = (rows[:, :, None] * width + columns[:, None, :]).reshape(n, 1, -1)
        out += tap * np.take_along_axis(flat, place, axis=2)
    return out.reshape(x.shape)


def _zoom(x: Pixels, factor: float) -> Pixels:
    """The middle of each image, enlarged to its size by linear interpolation."""
    size = x.shape[2:]
    matrix, offset = np.eye(2) / factor, (np.array(size) - 1) / 2 * (1 - 1 / factor)
    planes = [
        ndimage.affine_transform(plane, matrix, offset, order=1, mode="nearest") for plane in x.reshape(-1, *size)
    ]
    return np.stack(planes).reshape(x.shape)


def _read(x: Pixels, at: Pixels) -> Pixels:
    """Each image read at rows and columns of its own by linear interpolation; edges are mirrored."""
    out = np.empty_like(x)
    for image, places, result in zip(x, at, out, strict=True):
        for plane, target in zip(image, result, strict=True):
            ndimage.map_coordinates(plane, places, output=target, order=1, mode="reflect")
    return out


def _plasma(noise: Pixels, decay: float) -> Pixels:
    """Clouds in [0, 1] by diamonds and squares on a torus; noise shrinks by decay^2 a level, as in the original."""
    cloud, size, amount = np.zeros_like(noise), noise.shape[1], 1.0
    while size > 1:
        half = size // 2
        for row, column, around in ((half, half, DIAGONAL), (0, half, ACROSS), (half, 0, ACROSS)):
            at = (slice(None), slice(row, None, size), slice(column, None, size))
            near = sum(np.roll(cloud, (i * half, j * half), (1, 2))[at] for i, j in around)
            cloud[at] = near / 4 + np.float32(amount) * noise[at]
        size, amount = half, amount / decay**2
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= cloud.max(axis=(1, 2), keepdims=True)
    return cloud
