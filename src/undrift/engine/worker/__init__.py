"""The worker that trains clients, and the device it runs on."""
