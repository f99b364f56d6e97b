"""The backend that runs on Ray."""

try:
    import ray  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("RayBackend needs Ray: pip install 'undrift[ray]'") from error
