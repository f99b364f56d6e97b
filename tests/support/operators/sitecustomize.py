"""For processes of tests whose torchvision lacks two operators beside a CPU build of torch: defines them before it.

Python imports this file at its start if its folder is in PYTHONPATH. transformers and torchmetrics import torchvision.
"""

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _Operators(MetaPathFinder):
    """Finds nothing; the first search for torchvision defines the operators."""

    def find_spec(self, fullname: Any, path: Any, target: Any = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            for name in ("nms", "qnms"):
                torch.library.define(
                    f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )


sys.meta_path.insert(0, _Operators())
