"""A deployment is a run on a server."""
