"""Optimizers of the clients' steps."""

from undrift.blocks.local_optimizer.adam import LocalAdam, LocalAdamW
from undrift.blocks.local_optimizer.falling import FallingRate
from undrift.blocks.local_optimizer.muon import LocalMuon
from undrift.blocks.local_optimizer.sgd import LocalSGD

__all__ = ["FallingRate", "LocalAdam", "LocalAdamW", "LocalMuon", "LocalSGD"]
