"""Colour, shape and coding: brightness, contrast, saturation, elastic warps, pixelation and JPEG."""

from io import BytesIO
from typing import Any

import numpy as np

from undrift.data.arrays.images import need
from undrift.data.distortion.tools import Draws, Pixels, blur, each, read


def brightness(x: Pixels, _: Draws, more: float) -> Pixels:
    """More of HSV value: hue and saturation stay, so all channels grow by one factor."""
    value: Pixels = x.max(axis=1, keepdims=True)
    wanted = np.minimum(value + np.float32(more), np.float32(1))
    out: Pixels = np.where(value > 0, x * (wanted / np.where(value > 0, value, np.float32(1))), wanted)
    return out


def contrast(x: Pixels, _: Draws, share: float) -> Pixels:
    """A share of the distance from each channel's mean."""
    mean: Pixels = x.reshape(*x.shape[:2], -1).mean(axis=2)[:, :, None, None]
    return (x - mean) * np.float32(share) + mean


def saturate(x: Pixels, _: Draws, factor: float, more: float) -> Pixels:
    """HSV saturation times `factor`, plus `more`; grey pixels have the hue of red."""
    value: Pixels = x.max(axis=1, keepdims=True)
    away = value - x
    widest: Pixels = away.max(axis=1, keepdims=True)  # value x saturation
    grey = widest == 0
    red = np.array([0, 1, 1], np.float32).reshape(1, 3, 1, 1) * value
    away, widest = np.where(grey, red, away), np.where(grey, value, widest)
    before = np.where(grey | (value == 0), np.float32(0), widest / np.where(value > 0, value, np.float32(1)))
    wanted = np.clip(before * np.float32(factor) + np.float32(more), 0, 1)
    out: Pixels = value - away * (wanted * value / np.where(widest > 0, widest, np.float32(1)))
    return out


def elastic(x: Pixels, draws: Draws, amount: float, sigma: float, reach: float) -> Pixels:
    """An affine map that moves three points by up to `reach` pixels, and smooth shifts of up to `amount`, in one."""
    height, width = x.shape[2:]
    moves = np.stack([draw.uniform(-reach, reach, (3, 2, 1, 1)) for draw in draws]).astype(np.float32)
    noise = np.stack([draw.uniform(-1, 1, (2, height, width)) for draw in draws]).astype(np.float32)
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij")).astype(np.float32)
    down, right = (grid - np.array([height // 2, width // 2]).reshape(2, 1, 1)) / np.float32(min(height, width) // 3)
    by_row, by_column = (moves[:, 1] - moves[:, 2]) / 2, (moves[:, 0] - moves[:, 1]) / 2
    affine = moves[:, 0] + by_row * (down - 1) + by_column * (right - 1)
    return read(x, grid + affine.astype(np.float32) + np.float32(amount) * blur(noise, sigma, int(3 * sigma + 0.5)))


def pixelate(x: Pixels, _: Draws, share: float) -> Pixels:
    """Resized by a box filter to a share of its size, and back."""
    height, width = x.shape[2:]
    small = (int(width * share), int(height * share))
    return each(x, lambda image: image.resize(small, 4).resize((width, height), 4))  # 4 is PIL's BOX


def jpeg(x: Pixels, _: Draws, quality: int) -> Pixels:
    """JPEG at a quality of 1 to 95."""
    pictures = need("PIL.Image")

    def coded(image: Any) -> Any:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return pictures.open(file)

    return each(x, coded)
