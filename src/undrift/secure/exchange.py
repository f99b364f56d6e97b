"""A whole secure sum in one process: parties and server exchange their messages directly."""

from collections.abc import Callable, Iterable, Mapping

from undrift.secure.collector import Collector
from undrift.secure.party import Party
from undrift.secure.residues import Residues

STEPS = ("keys", "shares", "masked", "signatures", "revealed")
"""The steps of the protocol, by what parties send in them."""


def add_uploads(
    parties: Mapping[int, Party],
    server: Collector,
    uploads: Callable[[list[int]], Iterable[tuple[int, Residues]]],
    drops: Callable[[str, int], bool] = lambda _step, _party: False,
) -> Residues:
    """The sum of the uploads of the parties that are left at the end, which `server.survivors` names.

    Args:
        parties: the parties by number.
        server: the server.
        uploads: returns the uploads of parties, one after the other, by number; parties without one drop out.
        drops: whether what a party sends in a step is lost, and the party with it.

    Raises:
        SecureError: too few parties are left.
    """
    left = sorted(parties)

    def present(step: str) -> list[int]:
        left[:] = [party for party in left if not drops(step, party)]
        return left

    for party in present("keys"):
        server.take_keys(parties[party].advertise())
    keys = server.members.keys
    for party in present("shares"):
        server.take_shares(party, parties[party].share(keys))
    for party, upload in uploads(present("masked")):
        server.take_masked(party, parties[party].mask(server.shares_for(party), upload))
    left = list(server.survivors)
    for party in present("signatures"):
        server.take_signature(party, parties[party].confirm(server.survivors))
    for party in present("revealed"):
        server.take_revealed(party, parties[party].reveal(server.signatures_for(party)))
    return server.total()
