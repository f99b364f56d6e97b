"""Which clients take part in a round."""

from undrift.blocks.selection.power import PowerOfChoice

__all__ = ["PowerOfChoice"]
