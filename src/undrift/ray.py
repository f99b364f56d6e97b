"""Simulation on Ray: `Simulation(..., backend=RayBackend())`."""

from undrift.engine.dispatch import WorkerError
from undrift.engine.pool import Pool, fitting_pool
from undrift.engine.ray import RayBackend

__all__ = ["Pool", "RayBackend", "WorkerError", "fitting_pool"]
