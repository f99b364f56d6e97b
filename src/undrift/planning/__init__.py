"""What a round will cost, and what limits it first."""
