"""The contract suite, for everyone who adds a block or an algorithm, and small tasks to try them on."""

from undrift.core.server.wire import fingerprint
from undrift.testing.blobs import Projected, blobs
from undrift.testing.contract import check_algorithm, check_block
from undrift.testing.device import DeviceReport, check_device
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
