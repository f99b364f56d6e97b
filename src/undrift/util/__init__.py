"""Small helpers, independent of federated learning."""
