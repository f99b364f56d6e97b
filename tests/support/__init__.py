"""What tests share: small tasks and runs, stand-ins for servers and devices, and tables of inputs."""
