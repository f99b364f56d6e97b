"""One run from its start or checkpoint to its end."""
