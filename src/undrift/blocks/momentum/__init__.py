"""Momentum in the clients' steps."""

from undrift.blocks.momentum.server_momentum import ServerMomentum

__all__ = ["ServerMomentum"]
