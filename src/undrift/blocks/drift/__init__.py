"""Corrections against client drift."""

from undrift.blocks.drift.feddyn import FedDyn
from undrift.blocks.drift.scaffold import Scaffold, ScaffoldI

__all__ = ["FedDyn", "Scaffold", "ScaffoldI"]
