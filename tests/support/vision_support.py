"""torchvision for tests, where the extra `vision` is installed."""

from importlib.util import find_spec
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def torchvision() -> ModuleType:
    """torchvision; beside a CPU build of torch its wheel lacks two operators that no model here needs."""
    if find_spec("torchvision") is None or find_spec("timm") is None:
        pytest.skip("the extra `vision` is not installed")
    try:
        import torchvision.models
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision.models
    return torchvision.models
