"""Undrift on Flower: a strategy for any ServerApp, a ClientApp for any node, and Flower's simulation as a backend."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from undrift.engine.flower.backend import FlowerBackend
from undrift.engine.flower.node.client_app import client_app, host, open_visit
from undrift.engine.flower.node.edge_app import edge_app
from undrift.engine.flower.node.edge_grid import share_grid
from undrift.engine.flower.server.adaptive_bound import AdaptiveBound
from undrift.engine.flower.server.hosts import Hosts
from undrift.engine.flower.server.strategy import UndriftStrategy
from undrift.engine.flower.server.tally import RoundRecord
from undrift.engine.round.quarantine import Quarantine
from undrift.engine.worker.job import Job

if TYPE_CHECKING:
    from undrift.deploying.deploy import deploy
    from undrift.deploying.edge_log import EdgeLog
    from undrift.engine.flower.tables.node import host_table, prepared_file
    from undrift.engine.flower.tables.server import prepare_tables

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
    "host_table",
    "open_visit",
    "prepare_tables",
    "prepared_file",
    "share_grid",
]

_LATER = {
    "deploy": "undrift.deploying.deploy",
    "EdgeLog": "undrift.deploying.edge_log",
    "host_table": "undrift.engine.flower.tables.node",
    "prepared_file": "undrift.engine.flower.tables.node",
    "prepare_tables": "undrift.engine.flower.tables.server",
}


def __getattr__(name: str) -> Any:
    """What is loaded when it is first used: a node starts a process for each message and mostly needs none of it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
