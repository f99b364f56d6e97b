"""torchvision for tests, where the extra `vision` is installed."""

import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
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


@cache
def shim_folders() -> list[Path]:
    """What a process of its own needs on its path for packages that import torchvision: see `operators`."""
    if find_spec("torchvision") is None:
        return []
    works = [sys.executable, "-c", "import torchvision"]
    failed = subprocess.run(works, capture_output=True, timeout=120, check=False).returncode
    return [Path(__file__).parent / "operators"] if failed else []
