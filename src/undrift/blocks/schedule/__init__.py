"""When the server steps, and when clients begin."""

from undrift.blocks.schedule.buffered import Asynchronous, Buffered
from undrift.blocks.schedule.over_selected import OverSelected

__all__ = ["Asynchronous", "Buffered", "OverSelected"]
