"""A finished or stopped run: its best round, a checkpoint, its models for other programs."""
