"""Which part of the model is shared."""

from undrift.blocks.personalization.private import Private

__all__ = ["Private"]
