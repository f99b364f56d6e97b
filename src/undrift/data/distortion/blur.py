"""Blur: defocus, glass, motion, zoom and Gaussian."""

import numpy as np

from undrift.data.distortion.tools import Draws, Pixels, blur, disk, smear, zoom


def defocus_blur(x: Pixels, _: Draws, radius: float, alias: float) -> Pixels:
    """A disk with an alias filter of 3 x 3; below radius 1 the disk is one pixel, and only the filter blurs."""
    soft = blur(x, alias, 1)
    return soft if radius < 1 else disk(soft, radius)


def glass_blur(x: Pixels, draws: Draws, sigma: float, times: int) -> Pixels:
    """Blurred, each inner pixel swapped `times` times with one up to a step away, blurred again."""
    n, channels, height, width = x.shape
    place, each = np.tile(np.arange(height * width), (n, 1)), np.arange(n)
    for _ in range(times):
        steps = np.stack([draw.integers(-1, 2, (2, height, width)) for draw in draws])
        target = np.arange(height * width) + (steps[:, 0] * width + steps[:, 1]).reshape(n, -1)
        for here in np.arange(height * width).reshape(height, width)[-2:0:-1, -2:0:-1].ravel():
            there = target[:, here]
            place[each, here], place[each, there] = place[each, there], place[:, here].copy()
    mixed = np.take_along_axis(blur(x, sigma).reshape(n, channels, -1), place[:, None], axis=2)
    return blur(mixed.reshape(x.shape), sigma)


def motion_blur(x: Pixels, draws: Draws, radius: int, sigma: float) -> Pixels:
    """Smeared at an angle within 45 degrees of the rows."""
    return smear(x, np.array([draw.uniform(-45, 45) for draw in draws]), radius, sigma)


def zoom_blur(x: Pixels, _: Draws, count: int) -> Pixels:
    """The mean of the image and its zooms by 1.00, 1.01, ..., `count` in all."""
    return (x + sum(zoom(x, 1 + step / 100) for step in range(count))) / np.float32(count + 1)


def gaussian_blur(x: Pixels, _: Draws, sigma: float) -> Pixels:
    """A Gaussian of deviation `sigma`."""
    return blur(x, sigma)
