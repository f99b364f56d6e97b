"""Weather: snow, fog and spatter."""

import numpy as np
from numpy.random import Generator
from scipy import ndimage

from undrift.data.distortion.tools import GREY, Draws, Pixels, blur, equalised, plasma, smear, zoom

WATER = np.array([175, 238, 238], np.float32) / np.float32(255)  # pale turquoise
MUD = np.array([63, 42, 20], np.float32) / np.float32(255)
RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
"""A filter that lights the drops from one corner."""


def snow(
    x: Pixels,
    draws: Draws,
    mean: float,
    deviation: float,
    factor: float,
    threshold: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Pixels:
    """Whitened; then flakes, the high values of zoomed noise, smeared and added twice, once upside down."""
    noise = np.stack([draw.normal(mean, deviation, (1, *x.shape[2:])) for draw in draws]).astype(np.float32)
    flakes = zoom(noise, factor)
    flakes = np.where(flakes < threshold, np.float32(0), np.minimum(flakes, 1))
    flakes = smear(flakes, np.array([draw.uniform(-135, -45) for draw in draws]), radius, sigma)
    grey = x if x.shape[1] == 1 else sum(share * x[:, i : i + 1] for i, share in enumerate(GREY))
    light = np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    white = np.float32(keep) * x + np.float32(1 - keep) * light
    out: Pixels = white + flakes + flakes[:, :, ::-1, ::-1]
    return out


def fog(x: Pixels, draws: Draws, amount: float, decay: float) -> Pixels:
    """A plasma cloud is added, and the result scaled back to the image's maximum."""
    top = x.max(axis=(1, 2, 3), keepdims=True)
    side = 1 << (max(x.shape[2:]) - 1).bit_length()
    cloud = plasma(np.stack([draw.uniform(-1, 1, (side, side)) for draw in draws]).astype(np.float32), decay)
    haze = cloud[:, None, : x.shape[2], : x.shape[3]]
    out: Pixels = (x + np.float32(amount) * haze) * top / (top + np.float32(amount))
    return out


def spatter(
    x: Pixels,
    draws: Draws,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> Pixels:
    """Drops, the high values of blurred noise: of water, lit from a corner and added; or of mud, which covers.

    `strength` is the brightest value of water, and the deviation of the blur that rounds drops of mud.
    """
    noise = np.stack([_normal(draw, mean, deviation, x.shape[2:]) for draw in draws])
    liquid = blur(noise[:, None], sigma)
    colour = (MUD if mud else WATER) if x.shape[1] == 3 else np.array([(MUD if mud else WATER) @ GREY])
    colour = colour.astype(np.float32).reshape(1, -1, 1, 1)
    out: Pixels
    if mud:
        cover = blur((liquid > threshold).astype(np.float32), strength)
        cover = np.where(cover < 0.8, np.float32(0), cover)
        out = x * (1 - cover) + colour * cover
    else:
        drops = np.where(liquid < threshold, np.float32(0), liquid)
        lit = np.stack([_lit(drop[0]) for drop in drops])[:, None]
        out = x + np.float32(strength) * lit * colour
    return out


def _normal(draw: Generator, mean: float, deviation: float, shape: tuple[int, ...]) -> Pixels:
    return draw.normal(mean, deviation, shape).astype(np.float32)


def _lit(drops: Pixels) -> Pixels:
    """Drops in relief, with a maximum of 1: bright where the distance from their edges grows towards one corner."""
    inside = drops > 0
    edge = inside & ~ndimage.binary_erosion(inside, border_value=1)
    if not edge.any():
        return np.zeros_like(drops)
    distance = np.minimum(ndimage.distance_transform_edt(~edge), 20)
    level = equalised(ndimage.uniform_filter(distance, 3, mode="mirror").astype(np.uint8))
    relief = np.clip(ndimage.correlate(level.astype(np.float32), RELIEF, mode="mirror"), 0, 255)
    light = drops * ndimage.uniform_filter(relief, 3, mode="mirror")
    top = light.max()
    out: Pixels = (light / top if top > 0 else light).astype(np.float32)
    return out
