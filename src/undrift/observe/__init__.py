"""The lens applied to runs: measurements of a checkpoint, and rows while a run is in progress."""
