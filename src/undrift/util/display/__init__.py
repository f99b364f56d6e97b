"""Text, tables and progress for terminals and notebooks."""
