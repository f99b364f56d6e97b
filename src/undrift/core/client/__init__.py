"""The local loop and a client's visit."""
