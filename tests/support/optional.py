"""The libraries that the package works without."""

import re
from importlib.util import find_spec

OPTIONAL = (
    "ray flwr flwr_datasets datasets PIL matplotlib plotly sklearn onnx onnxscript torchvision timm tensorboard mlflow "
    "wandb pandas polars IPython s3fs accelerate peft transformers trl torchmetrics cryptography"
)


def missing_library(trace: str) -> str | None:
    """The optional library whose absence ended an import, None if something else did.

    Args:
        trace: what pytest shows of the error.
    """
    found = re.search(r"No module named '(\w+)", trace)
    name = "" if found is None else found[1]
    return name if name in OPTIONAL.split() and find_spec(name) is None else None
