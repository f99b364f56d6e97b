"""Undrift on Flower: a strategy for any ServerApp, a ClientApp for any node, and Flower's simulation as a backend."""

from undrift.engine.flower.backend import FlowerBackend
from undrift.engine.flower.client_app import client_app, host, open_visit
from undrift.engine.flower.strategy import UndriftStrategy
from undrift.engine.flower.tally import RoundRecord
from undrift.engine.job import Job

__all__ = ["FlowerBackend", "Job", "RoundRecord", "UndriftStrategy", "client_app", "host", "open_visit"]
