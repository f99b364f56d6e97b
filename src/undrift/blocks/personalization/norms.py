"""FedBN: normalisation layers stay with the client."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from torch import Tensor

from undrift.blocks.personalization.private import Kept
from undrift.core.model.flat_model import Layout


@dataclass(frozen=True)
class PrivateNorms(Kept):
    """client:  scale, shift and running statistics of normalisation layers stay with the client

    Layers are chosen by the class of their module, never by their names: names miss the norms of shortcuts.

    Args:
        kinds: patterns of the class names; ("*Norm*",) takes group and layer norm, too; () keeps statistics only.
    """

    keeps_buffers = True

    kinds: tuple[str, ...] = ("*BatchNorm*",)

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, tuple):
            raise TypeError(f"PrivateNorms: kinds must be a tuple of class names, got {self.kinds!r}")

    def own(self, layout: Layout) -> Tensor | None:
        """The tensors of these layers; None in a model without any."""
        return _own(self.kinds, layout)


@lru_cache(maxsize=64)
def _own(kinds: tuple[str, ...], layout: Layout) -> Tensor | None:
    """The elements of a layout whose modules are of these kinds."""
    owners = zip(layout.names, layout.owners, strict=True)
    chosen = {name for name, owner in owners if any(fnmatchcase(owner, kind) for kind in kinds)}
    return layout.mask(lambda name, _: name in chosen) if chosen else None
