"""Random flips and crops of a batch of images, in one gather over bytes."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Augment:
    """What is done to each training image.

    Args:
        flip: mirror half of the images left to right.
        crop: pad by so many black pixels on each side and cut the old size out anywhere; 0 switches it off.
    """

    flip: bool = False
    crop: int = 0

    @classmethod
    def parse(cls, text: str) -> "Augment":
        """From "none", "flip", "crop" or "flip+crop"; a crop pads by 4.

        Example:
            >>> Augment.parse("flip+crop")
            Augment(flip=True, crop=4)
        """
        parts = [] if text == "none" else text.split("+")
        if set(parts) - {"flip", "crop"}:
            raise ValueError(f'augment must be "none", "flip", "crop" or "flip+crop", got {text!r}')
        return cls("flip" in parts, 4 * ("crop" in parts))

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """A new batch; every image has draws of its own."""
        if not self:
            return images
        count, channels, height, width = images.shape
        top, left = torch.randint(2 * self.crop + 1, (2, count, 1), generator=generator)
        rows, columns = top + torch.arange(height), left + torch.arange(width)
        if self.flip:
            mirrored = torch.randint(2, (count, 1), generator=generator, dtype=torch.bool)
            columns = torch.where(mirrored, columns.flip(1), columns)
        padded = pad(images, [self.crop] * 4)
        cells = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
        return padded.flatten(2).gather(2, cells.view(count, 1, -1).expand(-1, channels, -1)).view(images.shape)

    def __bool__(self) -> bool:
        return self.flip or self.crop > 0

    def derived(self, generator: Generator) -> Generator:
        """A generator for the augmentation, derived from that of the order and leaving it as it is."""
        draw = torch.randint(2**62, (1,), generator=generator.clone_state())
        return Generator().manual_seed(int(draw))
