"""Engines: they move typed values between server and clients and contain no mathematics."""
