"""The policy for clients whose training fails, the same on every engine."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from undrift.core.client.visit import ClientError
from undrift.core.records.rejection import Reason, Rejection

Failures: TypeAlias = Literal["reject", "raise"]
"""Whether a client whose training fails is rejected, so that the round continues without it, or ends the run."""


def check_policy(failures: str) -> None:
    """Validate a policy."""
    if failures not in get_args(Failures):
        raise ValueError(
            f'failures: use "reject" (continue without the client) or "raise" (stop the run), got {failures!r}'
        )


def check_failures(
    accepted: int,
    rejections: Sequence[Rejection],
    absent: Mapping[int, str],
    failures: Failures = "reject",
    cause: Exception | None = None,
) -> None:
    """Raise `ClientError` if clients of a round failed and the policy is to raise, or if every client failed.

    The second case raises under either policy: a block that fails on every client must not pass for a run without
    progress.

    Args:
        accepted: how many uploads of the round were accepted.
        rejections: the rejected clients; those rejected for other reasons are no failures.
        absent: the clients that sent no reply, each with the reason.
        failures: the policy.
        cause: the exception behind the first failure, if known.
    """
    known = sorted((r for r in rejections if r.reason is Reason.FAILED), key=lambda r: r.client)
    failed = [rejection.detail for rejection in known]
    failed += [f"client {client}: {why}" for client, why in sorted(absent.items())]
    if not failed:
        return
    refused = sum(rejection.reason not in (Reason.FAILED, Reason.EMPTY, Reason.IDLE) for rejection in rejections)
    if not accepted and not refused:
        raise ClientError(f"{failed[0]} (every client of the round failed, {len(failed)} in all)") from cause
    if failures == "raise":
        count = accepted + refused + len(failed)
        raise ClientError(
            f'{failed[0]} ({len(failed)} of {count} clients failed; failures="reject" continues without them)'
        ) from cause
