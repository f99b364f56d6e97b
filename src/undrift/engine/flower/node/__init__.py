"""The ClientApp that runs on a node."""
