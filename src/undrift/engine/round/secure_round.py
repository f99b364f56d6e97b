"""A round whose uploads are added by the protocol of secure sums, in one process: every client is a party."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.types import Broadcast
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.secure_partial import from_vector, to_vector, vector_sizes
from undrift.engine.worker.worker import Worker
from undrift.secure.collector import Collector
from undrift.secure.exchange import add_uploads
from undrift.secure.members import Terms
from undrift.secure.party import Party
from undrift.secure.residues import Residues
from undrift.secure.settings import Secure, SecureError

_log = logging.getLogger(__name__)


def collect_secure(
    worker: Worker, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], secure: Secure
) -> Partial:
    """Train the clients of a round and sum their uploads without seeing one; see `Backend.collect`.

    A client that is rejected at its own gate drops out of the protocol. If too few are left, nothing is unmasked: the
    round has no upload.

    Args:
        worker: trains the clients.
        broadcast: what the server sent.
        clients: the clients of the round.
        accepted: for each client with state, the last round in which its upload was accepted.
        secure: the settings.
    """
    job, cohort = worker.job, len(clients)
    gate = job.gate(broadcast, clients, cohort)
    terms = Terms(secure, f"round {broadcast.round}")
    server = Collector(terms, sum(vector_sizes(gate.total(), broadcast).values()))
    failed = Partial(gate.total())

    def uploads(left: list[int]) -> Iterable[tuple[int, Residues]]:
        for one in worker.serve_apart(broadcast, left, accepted, cohort):
            if one.visits:
                yield one.total.clients[0], to_vector(one, broadcast, cohort)
            else:
                failed.rejections, failed.cause = one.rejections, one.cause

    try:
        vector = add_uploads({client: Party(client, terms) for client in clients}, server, uploads)
    except SecureError as error:
        _log.warning("round %d is abandoned, nothing is unmasked: %s", broadcast.round + 1, error)
        known = {rejection.client for rejection in failed.rejections}
        failed.rejections += [Rejection(c, Reason.MASKED, str(error)) for c in clients if c not in known]
        return failed
    partial = from_vector(vector, server.survivors, gate.total(), broadcast)
    total = gate.total()
    refused = gate.merge(partial.total, total)
    if refused is not None:
        failed.rejections += [Rejection(client, refused.reason, refused.detail) for client in server.survivors]
        return failed
    partial.total, partial.rejections, partial.cause = total, failed.rejections, failed.cause
    gone = set(clients) - set(server.survivors) - {rejection.client for rejection in failed.rejections}
    partial.absent = dict.fromkeys(gone, "dropped out of the secure sum")
    return partial
