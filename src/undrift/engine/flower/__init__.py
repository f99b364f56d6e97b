"""The Flower engine: a strategy for any ServerApp, a ClientApp for any node."""
