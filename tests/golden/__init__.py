"""Hashes that guard the arithmetic."""
