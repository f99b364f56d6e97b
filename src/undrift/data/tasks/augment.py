"""Random flips and crops of a batch of images, as one gather over bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from undrift.core.records.place import Place
from undrift.util.naming.binding import build
from undrift.util.naming.calls import Call, read_terms

WIDEST = 256
"""The widest padding of a crop, in pixels."""


@dataclass(frozen=True)
class Augment:
    """The augmentation of training images.

    Args:
        flip: mirror images left to right.
        crop: pad with this many pixels on each side and crop at random to the old size; 0 switches it off.
        flip_probability: the share of the images that are mirrored.
        crop_probability: the share of the images that are cropped.
        fill: the colour of the padding: "black", or "mean", the mean of the training images, which is zero after
            normalisation; it is rounded to a byte.
    """

    flip: bool = False
    crop: int = 0
    flip_probability: float = 0.5
    crop_probability: float = 1.0
    fill: str = "black"

    def __post_init__(self) -> None:
        if not 0 <= self.crop <= WIDEST:
            raise ValueError(f"augment: the padding of a crop must be 0 to {WIDEST} pixels, got {self.crop}")
        for term, share in (("flip", self.flip_probability), ("crop", self.crop_probability)):
            if not 0 < share <= 1:
                raise ValueError(f"augment: probability of {term} must be above 0 and at most 1, got {share}")
        if self.fill not in ("black", "mean"):
            raise ValueError(f'augment: fill of crop must be "black" or "mean", got {self.fill!r}')

    @classmethod
    def parse(cls, text: str) -> "Augment":
        """From "none", "flip", "crop" or "flip+crop", each with arguments in parentheses if they differ.

        Example:
            >>> Augment.parse("flip+crop(padding=8, probability=0.5)")
            Augment(flip=True, crop=8, flip_probability=0.5, crop_probability=0.5, fill='black')
        """
        fields: dict[str, Any] = {}
        for call in [] if text == "none" else _calls(text):
            if call.name not in _TERMS or call.name in fields:
                forms = ", ".join(f"{known}{signature(make)}".partition(" ->")[0] for known, make in _TERMS.items())
                raise ValueError(
                    f'augment must be "none", "flip", "crop" or "flip+crop", got {text[:80]!r}; '
                    f"the arguments are {forms}"
                )
            fields |= build(_TERMS[call.name], replace(call, source=f"augment = {call.source}"))
        return cls(**fields)

    def __str__(self) -> str:
        """The text that `parse` reads; arguments that have their defaults are left out."""
        crop = {"padding": self.crop, "probability": self.crop_probability, "fill": self.fill}
        terms = [_text("flip", {"probability": self.flip_probability})] * self.flip
        terms += [_text("crop", crop)] * bool(self.crop)
        return "+".join(terms) or "none"

    def __call__(self, images: Tensor, generator: Generator, mean: Sequence[float] = ()) -> Tensor:
        """A new batch; every image has its own random draws.

        Args:
            images: bytes (examples, channels, height, width).
            generator: the source of the draws.
            mean: the mean of each channel in [0, 1], for `fill="mean"`.
        """
        if not self:
            return images
        count, channels, height, width = images.shape
        offsets = torch.randint(2 * self.crop + 1, (2, count, 1), generator=generator)
        if self.crop_probability < 1:
            offsets = torch.where(_draw_mask(count, self.crop_probability, generator), offsets, self.crop)
        flips = _draw_mask(count, self.flip_probability, generator) if self.flip else torch.zeros(count, 1)
        top, left, flipped = Place(images.device).to(torch.stack([*offsets, flips.to(offsets.dtype)]))
        down, across = (torch.arange(size, device=images.device) for size in (height, width))
        rows, columns = top + down, left + across
        if self.flip:
            columns = torch.where(flipped.bool(), columns.flip(1), columns)
        padded = self._pad(images, mean)
        cells = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
        return padded.flatten(2).gather(2, cells.view(count, 1, -1).expand(-1, channels, -1)).view(images.shape)

    def __bool__(self) -> bool:
        return self.flip or self.crop > 0

    def derive_generator(self, generator: Generator) -> Generator:
        """A generator for the augmentation, derived from that of the order without changing it."""
        draw = torch.randint(2**62, (1,), generator=generator.clone_state())
        return Generator().manual_seed(int(draw))

    def _pad(self, images: Tensor, mean: Sequence[float]) -> Tensor:
        """The images with a border of `crop` pixels in the colour of `fill`."""
        padded = pad(images, [self.crop] * 4)
        if self.fill == "mean" and self.crop:
            colour = (255 * torch.tensor(mean, dtype=torch.float64)).round().to(images.dtype)
            padded[:] = colour.view(-1, 1, 1)
            padded[:, :, self.crop : -self.crop, self.crop : -self.crop] = images
        return padded


def _flip(probability: float = 0.5) -> dict[str, Any]:
    return {"flip": True, "flip_probability": float(probability)}


def _crop(padding: int = 4, probability: float = 1.0, fill: str = "black") -> dict[str, Any]:
    if padding < 1:
        raise ValueError(f"augment: the padding of a crop must be 1 to {WIDEST} pixels, got {padding}")
    return {"crop": padding, "crop_probability": float(probability), "fill": fill}


_TERMS: dict[str, Callable[..., dict[str, Any]]] = {"flip": _flip, "crop": _crop}
"""Name -> a function that has the term's arguments and returns fields of `Augment`."""


def _calls(text: str) -> list[Call]:
    """The terms of a text; what cannot be read is one unknown name."""
    try:
        return read_terms(text)
    except ValueError:
        return [Call(text)]


def _text(name: str, arguments: dict[str, object]) -> str:
    """A term, with the arguments that differ from their defaults."""
    defaults = signature(_TERMS[name]).parameters
    return str(Call(name, (), {key: value for key, value in arguments.items() if value != defaults[key].default}))


def _draw_mask(count: int, probability: float, generator: Generator) -> Tensor:
    """Whether each of `count` images was drawn, as a column; probability 0.5 draws one bit, as in earlier versions."""
    if probability == 0.5:
        return torch.randint(2, (count, 1), generator=generator, dtype=torch.bool)
    return torch.rand(count, 1, generator=generator) < probability
