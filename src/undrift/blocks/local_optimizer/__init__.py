"""Optimizers of the clients' steps."""

from undrift.blocks.local_optimizer.adam import LocalAdam, LocalAdamW
from undrift.blocks.local_optimizer.auto_step import AutoStep
from undrift.blocks.local_optimizer.corrected_muon import CorrectedMuon
from undrift.blocks.local_optimizer.falling import FallingRate
from undrift.blocks.local_optimizer.mixed import MixedAdamW, MixedMuon
from undrift.blocks.local_optimizer.mixed_soap import MixedSOAP
from undrift.blocks.local_optimizer.muon import LocalMuon
from undrift.blocks.local_optimizer.sgd import LocalSGD
from undrift.blocks.local_optimizer.soap import LocalSOAP

__all__ = [
    "AutoStep",
    "CorrectedMuon",
    "FallingRate",
    "LocalAdam",
    "LocalAdamW",
    "LocalMuon",
    "LocalSGD",
    "LocalSOAP",
    "MixedAdamW",
    "MixedMuon",
    "MixedSOAP",
]
