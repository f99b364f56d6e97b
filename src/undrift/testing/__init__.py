"""The contract suite, for everyone who adds a block or an algorithm, and small tasks to try them on."""

from undrift.testing.contract import ContractError, check_algorithm, check_block, fingerprint
from undrift.testing.tasks import Clinic, Quadratics

__all__ = ["Clinic", "ContractError", "Quadratics", "check_algorithm", "check_block", "fingerprint"]
