"""Filters that remove means: what a high-pass removes of a layer's gradient, in one pass and without a transform."""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Generator, Tensor

from undrift.blocks.spectral.filter import Filter
from undrift.core.model.flat_model import Layout, Vector
from undrift.util.naming.ranges import Count, Share

OVER = ("inputs", "outputs", "positions", "maps")
"""What `center` can take a mean over."""


@dataclass(frozen=True, repr=False)
class center(Filter):  # noqa: N801  a filter reads as a function
    """Every weight tensor loses its mean over inputs, positions or outputs; biases and norms are left alone.

    - "inputs": the mean over all inputs of each output, which is gradient centralization (Yong et al. 2020).
    - "positions": for each output and each channel of the input, the mean over the channel's positions: the window of
      a convolution, and for a dense layer behind a flattened image the pixels of each channel. A layer without
      positions (a kernel of one element, a dense layer behind a dense one) loses its mean over inputs.
    - "maps": "positions" for dense layers and "inputs" for convolutions, whose kernels then still learn the mean of a
      channel.
    - "outputs": the mean over the outputs of each input.

    Args:
        over: what the mean is taken over.
        share: how much of the mean is removed; 0 removes nothing.
    """

    over: str = "inputs"
    share: Share = 1.0
    scope: str | tuple[str, ...] = field(default="weights", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.over not in OVER:
            raise ValueError(f"center: over must be one of {', '.join(OVER)}, got {self.over!r}")
        if self.order != "0123":
            raise ValueError("center: a mean does not depend on an order; leave order out")

    def apply_(self, v: Vector, layout: Layout, generator: Generator | None = None) -> None:
        """Remove the means in place."""
        tensors = layout.split(v)
        for index, size in self.sizes(layout):
            self._remove(tensors[index], size)

    def sizes(self, layout: Layout) -> tuple[tuple[int, int], ...]:
        """The places of the tensors to change, each with the number of neighbours in a row that share a mean.

        Args:
            layout: the tensors.

        Example:
            >>> center("maps").sizes(Layout(("conv", "dense"), ((4, 1, 3, 3), (10, 4 * 49))))
            ((0, 9), (1, 49))
        """
        return _sizes(self, layout)

    def _remove(self, tensor: Tensor, size: int) -> None:
        """Remove the means of one tensor, over groups of `size` neighbours of a row."""
        if self.over == "outputs":
            remove_means(tensor.view(tensor.shape[0], -1), 0, self.share)
        else:
            remove_means(tensor.view(-1, size), 1, self.share)


def remove_means(rows: Tensor, axis: int, share: float = 1.0) -> None:
    """Remove the means of a matrix over an axis, in place.

    Args:
        rows: the matrix.
        axis: over which the means are taken.
        share: how much of them is removed.

    Example:
        >>> rows = torch.tensor([[1.0, 3.0], [4.0, 4.0]])
        >>> remove_means(rows, 1)
        >>> rows.tolist()
        [[-1.0, 1.0], [0.0, 0.0]]
    """
    rows.sub_(rows.mean(dim=axis, keepdim=True), alpha=share)


@lru_cache(maxsize=256)
def _sizes(filter: center, layout: Layout) -> tuple[tuple[int, int], ...]:
    """The tensors to change, each with the number of neighbours that share a mean."""
    found: list[tuple[int, int]] = []
    channels = 0
    for index, (name, shape, size) in enumerate(zip(layout.names, layout.shapes, layout.sizes, strict=True)):
        if len(shape) < 2:
            continue
        inputs = size // shape[0]
        window = size // (shape[0] * shape[1])  # positions of a kernel
        if len(shape) == 2 and channels and inputs % channels == 0:
            window = inputs // channels  # pixels of each channel, if the layer reads a flattened image
        channels = shape[0]
        if filter.covers(name, shape):
            windows = filter.over == "positions" or (filter.over == "maps" and len(shape) == 2)
            found.append((index, window if windows and window > 1 else inputs))
    return tuple((index, size) for index, size in found if size > 1 or filter.over == "outputs")


@dataclass(frozen=True, repr=False)
class block_means(Filter):  # noqa: N801
    """Every tensor, read as a sequence, loses the mean of each block of so many neighbours.

    The last block of a tensor may be shorter. A tensor that is not longer than one block is left alone, as `high_pass`
    leaves short tensors alone.

    Args:
        size: neighbours in a block.
    """

    size: Count

    def touches(self, size: int) -> bool:
        """Whether a tensor is longer than one block."""
        return size > self.size

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """Remove the means of a batch of sequences."""
        whole = rows.shape[-1] // self.size * self.size
        blocks, rest = rows[:, :whole].reshape(len(rows), -1, self.size), rows[:, None, whole:]
        parts = [part - part.mean(dim=-1, keepdim=True) for part in (blocks, rest) if part.numel()]
        return torch.cat([part.flatten(1) for part in parts], dim=1)
