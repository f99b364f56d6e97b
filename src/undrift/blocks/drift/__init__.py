"""Corrections against client drift."""

from undrift.blocks.drift.feddyn import FedDyn
from undrift.blocks.drift.scaffold import Scaffold
from undrift.blocks.drift.scaffold_i import ScaffoldI

__all__ = ["FedDyn", "Scaffold", "ScaffoldI"]
