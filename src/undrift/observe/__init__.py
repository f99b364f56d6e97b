"""The lens on runs: looks at a checkpoint, rows while a run goes on."""
