"""The corruptions, as functions of a batch of pixels in [0, 1], one random generator per image, and their constants.

The constants at severity 1 to 5 are those of CIFAR-10-C, for images of 32 x 32: Hendrycks and Dietterich, "Benchmarking
Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from collections.abc import Callable
from typing import NamedTuple

from undrift.data.distortion import blur, digital, noise, weather
from undrift.data.distortion.tools import Pixels


class Corruption(NamedTuple):
    """A type of corruption: its function, and the function's last arguments at severity 1 to 5."""

    change: Callable[..., Pixels]
    levels: tuple[tuple[float, ...], ...]


KINDS: dict[str, Corruption] = {
    "gaussian-noise": Corruption(noise.gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot-noise": Corruption(noise.shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse-noise": Corruption(noise.impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus-blur": Corruption(blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass-blur": Corruption(blur.glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion-blur": Corruption(blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom-blur": Corruption(blur.zoom_blur, ((7,), (12,), (16,), (21,), (26,))),
    "snow": Corruption(
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "fog": Corruption(weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(digital.brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "contrast": Corruption(digital.contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "elastic": Corruption(
        digital.elastic, ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96))
    ),
    "pixelate": Corruption(digital.pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "jpeg": Corruption(digital.jpeg, ((80,), (65,), (58,), (50,), (40,))),
    "speckle-noise": Corruption(noise.speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))),
    "gaussian-blur": Corruption(blur.gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1,))),
    "spatter": Corruption(
        weather.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.3, 1, 0.69, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, 0.6, True),
            (0.65, 0.1, 0.5, 0.68, 0.6, True),
        ),
    ),
    "saturate": Corruption(digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}
"""Name -> type of corruption: the standard ones, then the extra ones."""

STANDARD = tuple(KINDS)[:14]
"""The standard types, without frost."""
