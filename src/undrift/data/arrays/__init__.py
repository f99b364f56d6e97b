"""Data sets in memory."""
