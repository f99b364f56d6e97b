"""Engines: they move typed values between server and clients and know no mathematics."""
