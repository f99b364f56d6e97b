"""What a filter removes of clients' vectors, layer by layer, and whether it is where the clients differ."""

from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Layout
from undrift.lens.spectrum import Vectors, agreement, apply_filter, rows, share_of


@dataclass(frozen=True, eq=False)
class Removal:
    """The part of clients' vectors that an orthogonal projection removes, by layer; the last entry is the whole model.

    Args:
        layers: the names of the tensors.
        energy: the share of the clients' energy that lies in the part removed.
        variance: the share of the variance between clients that lies in it.
        removed: the agreement of the clients in the part removed: 1 if it is the same in all, 0 if they share nothing.
        kept: the agreement in the part kept.
    """

    layers: tuple[str, ...]
    energy: Tensor
    variance: Tensor
    removed: Tensor
    kept: Tensor

    def as_dict(self) -> dict[str, float]:
        """The whole model's numbers, then those of the layers by name."""
        names = ["", *(f"{layer}/" for layer in self.layers)]
        values = {"energy": self.energy, "variance": self.variance, "removed": self.removed, "kept": self.kept}
        order = [len(self.layers), *range(len(self.layers))]
        return {f"{name}{key}": float(x[i]) for name, i in zip(names, order, strict=True) for key, x in values.items()}


def removal_by_layer(vectors: Vectors, layout: Layout, filter: Filter, *, seed: int = 0) -> Removal:
    """Where the part that a filter removes lies: its share of each layer's energy and of the variance between clients.

    If the variance's share is above the energy's, the filter removes what clients disagree about more than what they
    share. Shares of a filter that is no orthogonal projection, such as `lap_d`, need not lie between 0 and 1.

    Args:
        vectors: one per client, at least two, all taken at the same model.
        layout: names and shapes of the tensors.
        filter: the filter, for example center() or high_pass(0.05).
        seed: for filters that draw at random.
    """
    matrix = rows("removal_by_layer", vectors, layout, least=2).double()
    keeps = torch.stack([apply_filter(filter, v, layout, k, seed) for k, v in enumerate(matrix)])
    whole, kept, removed = (_sums(x, layout) for x in (matrix, keeps, matrix - keeps))
    apart = tuple(energy - shared for energy, shared in (whole, kept, removed))
    return Removal(
        layout.names,
        share_of(removed[0], whole[0]),
        share_of(apart[2], apart[0]),
        *(_agreement(energy, shared, whole[0], len(matrix)) for energy, shared in (removed, kept)),
    )


def _sums(matrix: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """The clients' mean energy and the energy of their mean, for every layer and for the whole model."""
    parts = torch.split(matrix, list(layout.sizes), dim=1)
    energy = torch.stack([part.square().sum(dim=1).mean() for part in parts])
    shared = torch.stack([part.mean(dim=0).square().sum() for part in parts])
    return torch.cat([energy, energy.sum(dim=0, keepdim=True)]), torch.cat([shared, shared.sum(dim=0, keepdim=True)])


def _agreement(energy: Tensor, shared: Tensor, whole: Tensor, clients: int) -> Tensor:
    """The agreement in a part; 0 where no energy is left, a rounding error of the filter counting as none."""
    found = agreement(share_of(shared, energy), clients)
    return torch.where(energy <= 1e-24 * whole, 0.0, found)
