"""The machine: what is installed, which data sets there are, and what does not work together."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from rich.markup import escape

from undrift.cli.choosing.new import BEFORE_FLWR_RUN, NO_INSTALLS
from undrift.cli.console import open_console
from undrift.cli.plugins import by_package, survey
from undrift.cli.tables import show_rows
from undrift.data import available
from undrift.engine.worker.device import devices
from undrift.util.system import host_memory

_EXTRAS = {
    "ray": "ray",
    "flower": "flwr",
    "data": "datasets",
    "vision": "timm",
    "plots": "matplotlib",
    "report": "plotly",
    "analysis": "scikit-learn",
    "onnx": "onnx",
    "hf": "transformers",
    "s3": "s3fs",
    "secure": "cryptography",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
}
_ENGINES = {"ray": "ray", "flower": "flwr"}


def examine() -> dict[str, Any]:
    """What is installed, which data sets there are and what does not work."""
    plugged = survey()
    return {
        "undrift": version("undrift"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processors": os.cpu_count(),
        "memory_gb": round(host_memory().total / 1e9, 1),
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "devices": [
            {
                "name": item.name,
                "title": item.title,
                "memory_gb": None if item.memory is None else round(item.memory.total / 1e9, 1),
            }
            for item in devices()
        ],
        "engines": ["local", *(name for name, package in _ENGINES.items() if _version(package))],
        "extras": {extra: _version(package) for extra, package in _EXTRAS.items()},
        "data": [item._asdict() for item in available()],
        "plugins": by_package(plugged.working),
        "notes": [BEFORE_FLWR_RUN] if _version("flwr") and os.environ.get(NO_INSTALLS) != "1" else [],
        "problems": [*filter(None, [_torchvision(torch.__version__)]), *plugged.problems],
    }


def _torchvision(torch_version: str) -> str | None:
    """Why torchvision does not work with this torch, and what to install; None if it works or is missing.

    It is imported in another process, because a failed import would leave parts of it in this one.
    """
    if _version("torchvision") is None:
        return None
    words = [sys.executable, "-c", "import torchvision"]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace", check=False)  # noqa: S603  our own words
    if done.returncode == 0:
        return None
    why = (done.stderr.strip().splitlines() or [f"its import ended with code {done.returncode}"])[-1]
    return (
        f"torchvision {_version('torchvision')} does not fit torch {torch_version} ({why}); "
        f"densenet121 and vit-tiny need it. Install both from one place: {_fitting(torch_version)}"
    )


def _fitting(torch_version: str) -> str:
    """The command that installs a torchvision for a torch, from the index of the same build (cpu, cu126, ...)."""
    release, _, build = torch_version.partition("+")
    place = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
    return f"pip install --force-reinstall --no-deps torch=={release} torchvision{place}"


def show_machine(found: dict[str, Any]) -> None:
    """Print what `examine` found as lines and tables."""
    console, engines = open_console(), found["engines"]
    console.print(f"undrift {found['undrift']}, Python {found['python']}, torch {found['torch']}")
    console.print(f"{found['processors']} processors, {found['memory_gb']:.0f} GB of memory, {found['gpus']} GPUs")
    for item in found["devices"][1:]:
        size = "" if item["memory_gb"] is None else f", {item['memory_gb']:.0f} GB"
        console.print(f"device {item['name']}: {item['title']}{size}; check it: undrift doctor --device {item['name']}")
    console.print(
        f"engines: {', '.join(engines)}" + ("" if len(engines) == 3 else "  (pip install 'undrift\\[ray,flower]')")
    )
    extras = [
        [extra, package, found["extras"][extra] or f"no: pip install 'undrift[{extra}]'"]
        for extra, package in _EXTRAS.items()
    ]
    show_rows("", ["extra", "library", "installed"], extras)
    data = [
        [item["name"], "yes", item["where"]] if item["available"] else [item["name"], "no", item["how_to_get"]]
        for item in found["data"]
    ]
    show_rows("", ["data", "found", "where, or how to get it"], data)
    for package, adds in found["plugins"].items():
        console.print(f"{package} adds {adds}", highlight=False)
    for note in found["notes"]:
        console.print(f"note: {escape(note)}", highlight=False)
    for problem in found["problems"]:
        console.print(f"problem: {escape(problem)}", highlight=False)


def _version(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
