"""The figures and tables of a report."""
