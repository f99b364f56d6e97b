"""The corruptions of images; `undrift.data.tasks.corruption` applies them."""
