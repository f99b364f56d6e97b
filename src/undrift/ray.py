"""Simulation on Ray: `Simulation(..., backend=RayBackend())`."""

from undrift.engine.ray_backend.backend import RayBackend
from undrift.engine.ray_backend.dispatch import WorkerError
from undrift.engine.ray_backend.pool import Pool, fitting_pool

__all__ = ["Pool", "RayBackend", "WorkerError", "fitting_pool"]
