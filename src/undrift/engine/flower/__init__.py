"""The Flower engine: a strategy for any ServerApp, a ClientApp for any node."""

try:
    import flwr.app  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error
