"""The contract suite, for everyone who adds a block or an algorithm, small tasks to try them on, and NumPy oracles."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undrift.core.server.wire import fingerprint
    from undrift.testing.contract import check_algorithm, check_block
    from undrift.testing.device import DeviceReport, check_device
    from undrift.testing.projected import Projected, blobs
    from undrift.testing.tasks import Clinic, Quadratics, clinic
    from undrift.testing.watch import ContractError

__all__ = [
    "Clinic",
    "ContractError",
    "DeviceReport",
    "Projected",
    "Quadratics",
    "blobs",
    "check_algorithm",
    "check_block",
    "check_device",
    "clinic",
    "fingerprint",
]

_PLACES = {
    "core.server.wire": ("fingerprint",),
    "testing.projected": ("Projected", "blobs"),
    "testing.contract": ("check_algorithm", "check_block"),
    "testing.device": ("DeviceReport", "check_device"),
    "testing.tasks": ("Clinic", "Quadratics", "clinic"),
    "testing.watch": ("ContractError",),
}
"""Where each name is defined: it is imported when first used, so that `undrift.testing.oracles` needs no torch."""


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"undrift.{place}"), name)
            return value
    raise AttributeError(f"module 'undrift.testing' has no attribute {name!r}")
