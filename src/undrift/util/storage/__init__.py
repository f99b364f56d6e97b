"""Files that are written atomically, and rows of metrics."""
