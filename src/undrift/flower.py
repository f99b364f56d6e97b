"""Undrift on Flower: a strategy for any ServerApp, a ClientApp for any node, and Flower's simulation as a backend."""

from typing import TYPE_CHECKING, Any

from undrift.engine.flower.backend import FlowerBackend
from undrift.engine.flower.node.client_app import client_app, host, open_visit
from undrift.engine.flower.server.adaptive_bound import AdaptiveBound
from undrift.engine.flower.server.hosts import Hosts
from undrift.engine.flower.server.strategy import UndriftStrategy
from undrift.engine.flower.server.tally import RoundRecord
from undrift.engine.round.quarantine import Quarantine
from undrift.engine.worker.job import Job

if TYPE_CHECKING:
    from undrift.deploying.deploy import deploy

__all__ = [
    "AdaptiveBound",
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
        from undrift.deploying.deploy import deploy

        return deploy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
