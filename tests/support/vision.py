"""torchvision for tests, where the extra `vision` is installed."""

from importlib.util import find_spec
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def torchvision() -> ModuleType:
    """torchvision, beside any build of torch."""
    if find_spec("torchvision") is None or find_spec("timm") is None:
        pytest.skip("the extra `vision` is not installed")
    operators()
    import torchvision.models

    out: ModuleType = torchvision.models
    return out


def operators() -> None:
    """Define the two operators that torchvision's wheel lacks beside a CPU build of torch; no model here needs them."""
    try:
        import torchvision.models  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
