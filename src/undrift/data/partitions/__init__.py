"""Which examples each client has."""
