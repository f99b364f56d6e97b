"""The corruptions of images, by family; `undrift.data.corruption` applies them."""
