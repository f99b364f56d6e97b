"""Undrift on Flower: a strategy for any ServerApp, a ClientApp for any node, and Flower's simulation as a backend."""

from typing import TYPE_CHECKING, Any

from undrift.engine.flower.backend import FlowerBackend
from undrift.engine.flower.client_app import client_app, host, open_visit
from undrift.engine.flower.hosts import Hosts
from undrift.engine.flower.strategy import UndriftStrategy
from undrift.engine.flower.tally import RoundRecord
from undrift.engine.job import Job
from undrift.engine.quarantine import Quarantine

if TYPE_CHECKING:
    from undrift.experiment.deployment import deploy

__all__ = [
    "FlowerBackend",
    "Hosts",
    "Job",
    "Quarantine",
    "RoundRecord",
    "UndriftStrategy",
    "client_app",
    "deploy",
    "host",
    "open_visit",
]


def __getattr__(name: str) -> Any:
    """`deploy`, loaded when it is first used: a node starts a process for each message and does not need it."""
    if name == "deploy":
        from undrift.experiment.deployment import deploy

        return deploy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
