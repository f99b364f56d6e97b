"""The contenders, one module each: a function `run` that drives a library through its own classes."""

import torch


def allow_torchvision() -> None:
    """Let torchvision's wheel be imported beside a build of torch for processors, which lacks two of its operators."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
