"""A plug-in for Undrift."""
