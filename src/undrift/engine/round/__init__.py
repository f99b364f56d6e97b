"""The simulation, and the backend it runs on."""
