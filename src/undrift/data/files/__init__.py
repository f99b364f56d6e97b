"""Known data sets and where their files are."""
