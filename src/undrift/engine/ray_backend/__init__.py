"""The backend that runs on Ray."""
