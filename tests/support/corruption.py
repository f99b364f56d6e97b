"""Pictures for tests of corruptions."""

import numpy as np
from scipy import ndimage

from undrift.data.tasks.corruption import sample_keys


def pictures(count: int, channels: int, size: int, seed: int = 0) -> np.ndarray:
    """Soft blobs with a sharp edge: something a blur, a shift and a change of colour all act on."""
    draw = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size] / size
    at = draw.uniform(0.25, 0.75, (count, channels, 2, 1, 1))
    blob = np.exp(-((rows - at[:, :, 0]) ** 2 + (columns - at[:, :, 1]) ** 2) / 0.08)
    edge = 0.35 * (columns > draw.uniform(0.3, 0.7, (count, 1, 1, 1)))
    out: np.ndarray = np.rint(255 * np.clip(0.05 + 0.6 * blob + edge, 0, 1)).astype(np.uint8)
    return out


def textures(count: int, channels: int, size: int, seed: int = 0) -> np.ndarray:
    """Noise on all scales, as in photographs."""
    draw = np.random.default_rng(seed)
    noise = [draw.standard_normal((count, channels, size, size)) for _ in range(4)]
    soft = sum(s * ndimage.gaussian_filter(x, s, axes=(2, 3)) for x, s in zip(noise, (0.7, 1.5, 3, 6), strict=True))
    out: np.ndarray = np.rint(np.clip(128 + 60 * soft, 0, 255)).astype(np.uint8)
    return out


COLOUR, GREY = pictures(40, 3, 32), pictures(40, 1, 28)
KEYS = sample_keys(0, np.arange(40))
