"""Flower as an engine: a strategy for any ServerApp, a ClientApp for any node."""
