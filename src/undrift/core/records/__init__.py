"""What the server keeps, sends and receives, and exact sums."""
