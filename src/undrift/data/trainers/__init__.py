"""Trainers of Hugging Face as tasks: what a `Trainer` has is read, its training loop is not used."""
