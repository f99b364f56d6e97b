"""Undrift on Hugging Face: a `Trainer` of transformers or an `SFTTrainer` of TRL as a federated task."""

from undrift.data.tasks.batching import by_column
from undrift.data.trainers.settings import TrainerError
from undrift.data.trainers.task import TrainerTask

__all__ = ["TrainerError", "TrainerTask", "by_column"]
