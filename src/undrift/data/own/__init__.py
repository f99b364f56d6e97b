"""Data sets from users' own files and functions."""
