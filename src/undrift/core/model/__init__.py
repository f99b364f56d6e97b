"""A module as one vector, and its losses and gradients at any point."""
