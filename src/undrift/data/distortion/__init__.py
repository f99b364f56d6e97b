"""The corruptions of images, by family; `undrift.data.tasks.corruption` applies them."""
