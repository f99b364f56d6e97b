"""What is learned, on whose data, how it is evaluated, and who takes part."""
