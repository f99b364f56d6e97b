"""The corruptions of images by name: noise, blur, weather, and what changes colour, shape or coding.

Each is a function of a batch of pixels in [0, 1], one random generator per image, and its constants. The constants at
severity 1 to 5 are those of CIFAR-10-C, for images of 32 x 32: Hendrycks and Dietterich, "Benchmarking Neural Network
Robustness to Common Corruptions and Perturbations", ICLR 2019. `undrift.data.tasks.corruption` applies them.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from undrift.data.arrays.images import need
from undrift.data.distortion.tools import (
    GREY,
    Draws,
    Pixels,
    blur,
    disk,
    each,
    equalise,
    plasma,
    sample,
    smear,
    zoom,
)
from undrift.util.naming.names import suggest


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
    noise = np.stack([draw.normal(mean, deviation, x.shape[2:]) for draw in draws]).astype(np.float32)
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
        lit = np.stack([_relief(drop[0]) for drop in drops])[:, None]
        out = x + np.float32(strength) * lit * colour
    return out


def _relief(drops: Pixels) -> Pixels:
    """Drops in relief, with a maximum of 1: bright where the distance from their edges grows towards one corner."""
    from scipy import ndimage

    inside = drops > 0
    edge = inside & ~ndimage.binary_erosion(inside, border_value=1)
    if not edge.any():
        return np.zeros_like(drops)
    distance = np.minimum(ndimage.distance_transform_edt(~edge), 20)
    level = equalise(ndimage.uniform_filter(distance, 3, mode="mirror").astype(np.uint8))
    relief = np.clip(ndimage.correlate(level.astype(np.float32), RELIEF, mode="mirror"), 0, 255)
    light = drops * ndimage.uniform_filter(relief, 3, mode="mirror")
    top = light.max()
    out: Pixels = (light / top if top > 0 else light).astype(np.float32)
    return out


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
    return sample(x, grid + affine.astype(np.float32) + np.float32(amount) * blur(noise, sigma, int(3 * sigma + 0.5)))


def pixelate(x: Pixels, _: Draws, share: float) -> Pixels:
    """Resized by a box filter to a share of its size, and back."""
    height, width = x.shape[2:]
    small = (int(width * share), int(height * share))
    return each(x, lambda image: image.resize(small, 4).resize((width, height), 4))  # 4 is PIL's BOX


def jpeg(x: Pixels, _: Draws, quality: int) -> Pixels:
    """JPEG at a quality of 1 to 95."""
    pictures = need("PIL.Image")

    def recode(image: Any) -> Any:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return pictures.open(file)

    return each(x, recode)


class Corruption(NamedTuple):
    """A type of corruption: its function, and the function's last arguments at severity 1 to 5."""

    change: Callable[..., Pixels]
    levels: tuple[tuple[float, ...], ...]


KINDS: dict[str, Corruption] = {
    "gaussian-noise": Corruption(gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot-noise": Corruption(shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse-noise": Corruption(impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus-blur": Corruption(defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass-blur": Corruption(glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion-blur": Corruption(motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom-blur": Corruption(zoom_blur, ((7,), (12,), (16,), (21,), (26,))),
    "snow": Corruption(
        snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "fog": Corruption(fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "contrast": Corruption(contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "elastic": Corruption(
        elastic, ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96))
    ),
    "pixelate": Corruption(pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "jpeg": Corruption(jpeg, ((80,), (65,), (58,), (50,), (40,))),
    "speckle-noise": Corruption(speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))),
    "gaussian-blur": Corruption(gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1,))),
    "spatter": Corruption(
        spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.3, 1, 0.69, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, 0.6, True),
            (0.65, 0.1, 0.5, 0.68, 0.6, True),
        ),
    ),
    "saturate": Corruption(saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}
"""Name -> type of corruption: the standard ones, then the extra ones."""

STANDARD = tuple(KINDS)[:14]
"""The standard types, without frost."""


GROUPS = {"standard": STANDARD, "all": tuple(KINDS)}
"""Names for several types."""

ALIASES = {"elastic-transform": "elastic", "jpeg-compression": "jpeg"}
"""CIFAR-C's file names that differ from ours in more than a dash."""

SMALLEST = 8
"""The fewest rows and columns of an image; the constants are for 32 x 32."""


def kind_name(name: str) -> str:
    """The name of a corruption in `KINDS`; CIFAR-C's file names, as "jpeg_compression", are understood.

    Example:
        >>> kind_name("jpeg_compression"), kind_name("shot_noise")
        ('jpeg', 'shot-noise')
    """
    plain = name.replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain == "frost":
        raise ValueError(
            "corrupt: frost needs photographs of ice, which are not included; "
            f"choose from the other types: {', '.join(KINDS)}"
        )
    if plain not in KINDS:
        raise ValueError(f"corrupt: no corruption is named {name!r}; {suggest(plain, KINDS)}")
    return plain


def parse_kinds(text: str) -> tuple[str, ...]:
    """The types that a text names: "standard", "all", or names joined by "+"; in the order of `KINDS`.

    Example:
        >>> parse_kinds("snow+shot-noise")
        ('shot-noise', 'snow')
    """
    named = {kind for name in text.split("+") for kind in GROUPS.get(name) or (kind_name(name),)}
    return tuple(kind for kind in KINDS if kind in named)


def kinds_text(kinds: tuple[str, ...]) -> str:
    """The shortest text that names these types, for `parse_kinds`.

    Example:
        >>> kinds_text(STANDARD), kinds_text(("snow", "fog"))
        ('standard', 'snow+fog')
    """
    return next((name for name, group in GROUPS.items() if group == kinds), "+".join(kinds))


def check_images(kinds: tuple[str, ...], shape: tuple[int, ...]) -> None:
    """Raise if one of the types cannot be applied to images of a shape: (channels, rows, columns)."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"corrupt: images must have 1 or 3 channels, rows and columns, got the shape {shape}")
    if min(shape[1:]) < SMALLEST:
        raise ValueError(
            f"corrupt: images must have at least {SMALLEST} rows and columns, because the corruptions are made for "
            f"32 x 32, got {shape[1]} x {shape[2]}; scale the images up first"
        )
    if shape[0] == 1 and "saturate" in kinds:
        others = kinds_text(tuple(kind for kind in kinds if kind != "saturate")) or "standard"
        raise ValueError(
            f"corrupt: saturate changes colours, but these images are grey; name the others: types={others}"
        )
