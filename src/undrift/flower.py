"""Undrift on Flower: a strategy for any ServerApp, a ClientApp for any node, and Flower's simulation as a backend."""

from typing import TYPE_CHECKING, Any

from undrift.engine.flower.backend import FlowerBackend
from undrift.engine.flower.node.client_app import client_app, host, open_visit
from undrift.engine.flower.node.edge_app import edge_app
from undrift.engine.flower.server.adaptive_bound import AdaptiveBound
from undrift.engine.flower.server.hosts import Hosts
from undrift.engine.flower.server.strategy import UndriftStrategy
from undrift.engine.flower.server.tally import RoundRecord
from undrift.engine.round.quarantine import Quarantine
from undrift.engine.worker.job import Job

if TYPE_CHECKING:
    from undrift.deploying.deploy import deploy
    from undrift.deploying.edge_log import EdgeLog

__all__ = [
    "AdaptiveBound",
    "EdgeLog",
    "FlowerBackend",
    "Hosts",
    "Job",
    "Quarantine",
    "RoundRecord",
    "UndriftStrategy",
    "client_app",
    "deploy",
    "edge_app",
    "host",
    "open_visit",
]


def __getattr__(name: str) -> Any:
    """`deploy` and `EdgeLog`, loaded when first used: a node starts a process for each message and needs neither."""
    if name == "deploy":
        from undrift.deploying.deploy import deploy

        return deploy
    if name == "EdgeLog":
        from undrift.deploying.edge_log import EdgeLog

        return EdgeLog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
