"""Where clients' states are kept."""
