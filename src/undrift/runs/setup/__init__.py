"""From settings to data, partition, model, task and simulation."""
