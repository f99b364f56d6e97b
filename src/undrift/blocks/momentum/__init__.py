"""Momentum in the clients' steps."""

from undrift.blocks.momentum.adaptive import AdaptiveMomentum
from undrift.blocks.momentum.local_momentum import LocalMomentum
from undrift.blocks.momentum.server_momentum import ServerMomentum

__all__ = ["AdaptiveMomentum", "LocalMomentum", "ServerMomentum"]
