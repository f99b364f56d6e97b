"""Filters that remove bins of the Fourier spectrum of a tensor read as a sequence."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from undrift.blocks.spectral.filter import Filter, removed_bins, signal, spectrum
from undrift.blocks.spectral.lowband import choose, remove_low_
from undrift.util.naming.ranges import Fraction


@dataclass(frozen=True, repr=False)
class _Share(Filter):
    """A filter that removes a share `r` of the bins."""

    r: Fraction

    def touches(self, size: int) -> bool:
        """Small tensors, with fewer than 1/r bins, are left alone."""
        return removed_bins(self.r, size) > 0


@dataclass(frozen=True, repr=False)
class high_pass(_Share):  # noqa: N801  a filter reads as a function
    """H_r: zero the floor(r * bins) lowest bins of the spectrum, the mean first. An orthogonal projection.

    Args:
        r: share of the bins to remove; 0 removes nothing.
    """

    def alone(self, size: int) -> bool:
        """Long tensors are filtered where they are, without a copy."""
        return choose(size, removed_bins(self.r, size)) != "basis"

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """Remove the lowest bins."""
        out = rows.clone(memory_format=torch.contiguous_format)
        self.rows_(out, generator)
        return out

    def rows_(self, rows: Tensor, generator: Generator | None) -> None:
        """Remove the lowest bins in place; a single one is the mean."""
        count = removed_bins(self.r, rows.shape[-1])
        if count == 1:
            rows.sub_(rows.mean(dim=-1, keepdim=True))
        elif count > 1:
            remove_low_(rows, count)


@dataclass(frozen=True, repr=False)
class low_pass(_Share):  # noqa: N801
    """The ablation of `high_pass`: zero as many bins at the upper end of the spectrum.

    Args:
        r: share of the bins to remove; 0 removes nothing.
    """

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """Zero the highest bins."""
        bins = spectrum(rows)
        bins[:, bins.shape[-1] - removed_bins(self.r, rows.shape[-1]) :] = 0
        return signal(bins, rows)


@dataclass(frozen=True, repr=False)
class random_stop(_Share):  # noqa: N801
    """The ablation of `high_pass`: zero as many bins drawn at random, anew for every step and tensor.

    Args:
        r: share of the bins to remove; 0 removes nothing.
    """

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """Zero a fresh draw of bins in each row."""
        if generator is None:
            raise ValueError("random_stop: pass the client's generator as the third argument")
        bins = spectrum(rows)
        draw = torch.rand(bins.shape, generator=generator, device="cpu").argsort(dim=-1)
        drawn = draw[:, : removed_bins(self.r, rows.shape[-1])].to(rows.device)
        return signal(bins.scatter(-1, drawn, 0), rows)
