"""Accuracy over a setting."""
