"""Terms added to the clients' loss."""

from undrift.blocks.objective.proximal import Proximal

__all__ = ["Proximal"]
