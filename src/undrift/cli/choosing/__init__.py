"""Commands before a run: list, show, advise, partition, doctor, new."""
