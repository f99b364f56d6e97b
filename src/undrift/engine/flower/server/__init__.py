"""The strategy that runs in the ServerApp."""
