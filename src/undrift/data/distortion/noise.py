"""Noise: Gaussian, shot, impulse and speckle."""

import numpy as np

from undrift.data.distortion.tools import Draws, Pixels


def gaussian_noise(x: Pixels, draws: Draws, deviation: float) -> Pixels:
    """Normal noise."""
    return x + np.float32(deviation) * _normal(x, draws)


def shot_noise(x: Pixels, draws: Draws, photons: float) -> Pixels:
    """Poisson(photons x) / photons."""
    counts = np.stack([draw.poisson(photons * image) for draw, image in zip(draws, x, strict=True)])
    return counts.astype(np.float32) / np.float32(photons)


def impulse_noise(x: Pixels, draws: Draws, share: float) -> Pixels:
    """Each value is black or white, with a total probability of `share`."""
    chance = np.stack([draw.random(x.shape[1:], np.float32) for draw in draws])
    return np.where(chance < share, (chance < share / 2).astype(np.float32), x)


def speckle_noise(x: Pixels, draws: Draws, deviation: float) -> Pixels:
    """Normal noise in proportion to the value."""
    return x + x * np.float32(deviation) * _normal(x, draws)


def _normal(x: Pixels, draws: Draws) -> Pixels:
    return np.stack([draw.standard_normal(x.shape[1:], np.float32) for draw in draws])
