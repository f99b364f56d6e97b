"""Filters that change a vector without choosing frequencies: what a spectral method has to beat."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from undrift.blocks.spectral.filter import Filter
from undrift.blocks.spectral.fourier import _Share, high_pass
from undrift.core.model.flat_model import Layout, Vector
from undrift.util.naming.ranges import AboveZero


@dataclass(frozen=True, repr=False)
class rescale(_Share):  # noqa: N801  a filter reads as a function
    """Every tensor keeps its direction and takes the norm that `high_pass(r)` would leave it.

    Args:
        r: the share of `high_pass`; 0 changes nothing.
    """

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """Scale each row by the norm of its filtered self over its own."""
        filtered = high_pass(self.r).rows(rows, generator)
        own = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        kept = torch.linalg.vector_norm(filtered, dim=-1, keepdim=True)
        return rows * torch.where(own > 0, kept / own, torch.ones_like(own))


@dataclass(frozen=True, repr=False)
class cap_norm(Filter):  # noqa: N801
    """The whole vector shortened to norm `rho` if it is longer: nothing, on a SAM offset of that radius.

    Args:
        rho: the largest norm; infinity changes nothing.
    """

    rho: AboveZero

    def __call__(self, v: Vector, layout: Layout, generator: Generator | None = None) -> Vector:
        """Shorten the vector, whatever the scope."""
        norm = float(torch.linalg.vector_norm(v))
        return v * (self.rho / norm) if norm > self.rho else v.clone()


@dataclass(frozen=True, repr=False)
class clip_coordinates(Filter):  # noqa: N801
    """Every coordinate cut to `kappa` times the median magnitude of its tensor.

    Args:
        kappa: the multiple of the median; infinity changes nothing.
    """

    kappa: AboveZero = 3.0

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """Cut each row; the median of an even count is the mean of the two in the middle."""
        ordered = rows.abs().sort(dim=-1).values
        size = rows.shape[-1]
        median = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
        limit = (self.kappa * median).unsqueeze(-1)
        return rows.clamp(min=-limit, max=limit)
