"""The settings of secure sums."""

from dataclasses import dataclass
from math import floor
from typing import Annotated, Any

from pydantic import Field

from undrift.core.local.settings import Local
from undrift.core.method.aggregation import Gathering
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Bound
from undrift.util.naming.binding import check_fields


class SecureError(RuntimeError):
    """A secure sum cannot be made: a message is wrong, or too few parties are left. Nothing is unmasked."""


@dataclass(frozen=True)
class Secure:
    """How the uploads of a round are added without being seen: the table `secure` of run files has these fields.

    A party is a client, or a node with the sum of its clients. A party's secrets are shared among itself and its
    neighbours; more than a fraction `threshold` of these must stay to the end, and as many would have to collude with
    the server to see the party's upload.

    Args:
        least: the fewest parties whose sum is unmasked; with fewer a round is abandoned.
        threshold: the fraction, from 0.5; above 2/3 no server can use two lists of survivors, even with a third of
            the parties on its side.
        neighbours: with how many others a party exchanges masks, an even number; in a round with fewer parties, all.
            With 128 of 1,000 parties, a fifth of them colluding with the server and 30 % dropping out by chance, an
            upload is seen with a probability below 1e-12, and a round abandoned with one below 2e-4.
    """

    least: Annotated[int, Field(ge=2, le=1_000_000, strict=True)] = 3
    threshold: Annotated[float, Field(ge=0.5, lt=1, strict=True)] = 0.5
    neighbours: Annotated[int, Field(ge=2, le=1_000_000, multiple_of=2, strict=True)] = 128

    @check_fields
    def __post_init__(self) -> None:
        """The annotations have all rules."""

    def shares(self, group: int) -> int:
        """How many shares give a secret that is shared among so many parties."""
        return floor(self.threshold * group) + 1


def read_secure(value: Any) -> Any:
    """The settings for true, None for false; anything else as it is.

    Example:
        >>> read_secure(True)
        Secure(least=3, threshold=0.5, neighbours=128)
    """
    return (Secure() if value else None) if isinstance(value, bool) else value


def why_not_secure(algorithm: Algorithm, local: Local, model: Bound | None = None) -> str:
    """Why the uploads of a method cannot be summed securely; "" if they can.

    Args:
        algorithm: the method.
        local: the settings all clients share.
        model: the task's model; None leaves out what depends on it.
    """
    if isinstance(algorithm.aggregation, Gathering):
        return (
            f"aggregation={algorithm.aggregation!r} takes uploads one by one, which a secure sum hides; use a rule of "
            "sums, such as uniform"
        )
    if algorithm.fills("selection"):
        return (
            f"selection={algorithm.selection!r} reads the loss of every candidate, which a secure sum hides; leave the "
            "selection out"
        )
    if algorithm.schedule.overlaps:
        return f"schedule={algorithm.schedule!r} adds uploads that started from several models; leave it out"
    if model is not None and model.counts.numel() and not algorithm.keeps_buffers(local):
        return (
            'the model has counters of batches, whose maximum over clients is no sum; set buffers = "keep" in local, '
            "or use a model without batch normalisation"
        )
    return ""


def check_secure(
    secure: Secure | None, algorithm: Algorithm, local: Local, model: Bound, fixed: int | None, backend: str = ""
) -> None:
    """Raise if a simulation cannot sum uploads securely, or if the method's noise needs it and it does not.

    Args:
        secure: the settings; None has no secure sum.
        algorithm: the method.
        local: the settings all clients share.
        model: the task's model.
        fixed: how many clients take part in every round; None if their number varies.
        backend: what adds uploads outside of this process; "" if nothing does.
    """
    if secure is not None:
        why = why_not_secure(algorithm, local, model)
        if fixed and fixed < secure.least:
            why = f"a cohort of {fixed}, and a sum of fewer than {secure.least} is not unmasked"
        if backend:
            why = f"{backend} adds uploads where they are trained; leave backend out, so that each client is a party"
        if why:
            raise ValueError(f"secure: {why}")
    check_noise_shares(secure, algorithm)


def check_noise_shares(secure: Secure | None, algorithm: Algorithm) -> None:
    """Raise if a method's noise is in shares, and so few clients may be in a sum that it has less noise than stated.

    Args:
        secure: the settings; None has no secure sum.
        algorithm: the method.
    """
    least = algorithm.release.least
    if least and (secure is None or secure.least < least):
        raise ValueError(
            f"release={algorithm.release!r}: without a secure sum of {least} clients or more the server sees the "
            f"noise of fewer; set secure = Secure(least={least}), or take private-sum, whose noise the server adds"
        )
