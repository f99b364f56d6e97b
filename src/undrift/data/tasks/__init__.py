"""The task on a data set: batches, augmentation, evaluation."""
