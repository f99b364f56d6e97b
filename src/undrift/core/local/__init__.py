"""The settings of local training."""
