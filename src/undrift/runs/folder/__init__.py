"""The folder of a run: its files, checkpoints, audit log and checks."""
