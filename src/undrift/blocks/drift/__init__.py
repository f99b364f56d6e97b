"""Corrections against client drift."""

from undrift.blocks.drift.feddyn import FedDyn
from undrift.blocks.drift.inside import FollowedVariates, ScaffoldInside
from undrift.blocks.drift.scaffold import Scaffnew, Scaffold, ScaffoldI

__all__ = ["FedDyn", "FollowedVariates", "Scaffnew", "Scaffold", "ScaffoldI", "ScaffoldInside"]
