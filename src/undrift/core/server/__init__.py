"""From uploads to the next model."""
