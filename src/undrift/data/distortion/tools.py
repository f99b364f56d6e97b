"""What the corruptions are made of: blurs, zooms, warps and clouds of a batch of pixels.

SciPy is imported where it is used, so that runs without corruptions start sooner.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from undrift.data.arrays.images import need

Images = NDArray[np.uint8]
Pixels = NDArray[np.float32]  # images x channels x rows x columns, in [0, 1]
Draws = list[Generator]  # one for each image
GREY = np.array([0.299, 0.587, 0.114], np.float32)
DIAGONAL, ACROSS = ((1, 1), (1, -1), (-1, 1), (-1, -1)), ((1, 0), (-1, 0), (0, 1), (0, -1))


def to_bytes(x: Pixels) -> Images:
    """Pixels as bytes, rounded to the nearest."""
    return np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)


def each(x: Pixels, change: Callable[[Any], Any]) -> Pixels:
    """Apply a function of PIL images to every image."""
    pictures = need("PIL.Image")
    grey = x.shape[1] == 1
    rows = to_bytes(x[:, 0] if grey else x.transpose(0, 2, 3, 1))
    changed = np.stack([np.asarray(change(pictures.fromarray(row))) for row in rows]).astype(np.float32) / np.float32(
        255
    )
    return changed[:, None] if grey else changed.transpose(0, 3, 1, 2)


def blur(x: Pixels, sigma: float, radius: int | None = None) -> Pixels:
    """A Gaussian blur cut off at a radius, by default four deviations, over rows and columns; edges are mirrored."""
    from scipy import ndimage

    radius = int(4 * sigma + 0.5) if radius is None else radius
    if radius == 0:
        return x
    out: Pixels = ndimage.gaussian_filter(x, sigma, mode="reflect", radius=radius, axes=(2, 3))
    return out


def disk(x: Pixels, radius: float) -> Pixels:
    """The mean over the pixels whose centres are at most `radius` away; edges are mirrored."""
    from scipy import ndimage

    reach = int(radius)
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (rows**2 + columns**2 <= radius**2).astype(np.float32)
    out: Pixels = ndimage.correlate(x, (inside / inside.sum())[None, None], mode="reflect")
    return out


def smear(x: Pixels, degrees: NDArray[np.float64], radius: int, sigma: float) -> Pixels:
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


def zoom(x: Pixels, factor: float) -> Pixels:
    """The centre of each image, enlarged to the image's size by linear interpolation."""
    from scipy import ndimage

    size = x.shape[2:]
    matrix, offset = np.eye(2) / factor, (np.array(size) - 1) / 2 * (1 - 1 / factor)
    planes = [
        ndimage.affine_transform(plane, matrix, offset, order=1, mode="nearest") for plane in x.reshape(-1, *size)
    ]
    return np.stack(planes).reshape(x.shape)


def sample(x: Pixels, at: Pixels) -> Pixels:
    """Each image sampled at its own coordinates by linear interpolation; edges are mirrored."""
    from scipy import ndimage

    out = np.empty_like(x)
    for image, places, result in zip(x, at, out, strict=True):
        for plane, target in zip(image, result, strict=True):
            ndimage.map_coordinates(plane, places, output=target, order=1, mode="reflect")
    return out


def plasma(noise: Pixels, decay: float) -> Pixels:
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


def equalise(levels: Images) -> Images:
    """An image whose bytes are spread over 0 to 255 so that each is about as frequent as any other."""
    counts = np.bincount(levels.ravel(), minlength=256)
    first = int(np.flatnonzero(counts)[0])
    rest = levels.size - int(counts[first])
    if rest == 0:
        return levels
    table = np.rint(np.clip(np.cumsum(counts) - counts[first], 0, None) * (255 / rest)).astype(np.uint8)
    out: Images = table[levels]
    return out
