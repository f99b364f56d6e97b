"""Simulation on Ray: `Simulation(..., backend=RayBackend())`."""

from undrift.engine.ray import Pool, RayBackend

__all__ = ["Pool", "RayBackend"]
