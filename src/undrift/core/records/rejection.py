"""Why an upload was rejected."""

from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Why an upload was rejected."""

    SENDER = "the client was not selected in this round"
    DUPLICATE = "the client was counted already"
    ROUND = "it belongs to another round"
    EMPTY = "the client has no examples"
    IDLE = "the client has no local step in this round"
    COUNT = "examples or steps is not the whole number expected"
    TREE = "a part is missing or was not declared"
    SHAPE = "a tensor has another shape than declared"
    DTYPE = "a tensor has another dtype than the model"
    FINITE = "a value is not finite"
    SIZE = "a value is too large to be summed exactly, or the norm exceeds the bound"
    WEIGHT = "its weight is not a finite number of 0 or more"
    FAILED = "its training failed"
    SHARE = "its node had too much of the round's weight"
    STALE = "the model it started from is too old"
    VERSION = "its node has another version of the messages"
    MASKED = "the secure sum of its round was not unmasked"


@dataclass(frozen=True)
class Rejection:
    """A rejected upload: whose, why, and in which field."""

    client: int
    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        """One line for a log."""
        return f"client {self.client}: {self.reason.value}" + (f" ({self.detail})" if self.detail else "")


class RejectedError(Exception):
    """A check of the gate that failed.

    Args:
        reason: why.
        detail: in which field.
    """

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail
