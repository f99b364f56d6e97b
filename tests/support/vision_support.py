"""torchvision beside a CPU build of torch."""

import torch


def operators() -> None:
    """Define the two operators that torchvision's wheel lacks beside a CPU build of torch; no model here needs them."""
    try:
        import torchvision.models  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
