"""Slow, textbook oracles written from the reference sheets, without looking at the library."""
