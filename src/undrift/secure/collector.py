"""The server of a secure sum: it passes messages on, and sees the sum of the uploads that arrived, nothing else."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from undrift.secure.keys import agree, agreement_key, is_signed
from undrift.secure.members import Keys, Members, Terms, read_members
from undrift.secure.party import pair_seed
from undrift.secure.residues import Residues
from undrift.secure.settings import SecureError
from undrift.secure.shamir import LENGTH, join


@dataclass(eq=False)
class Collector:
    """The state of the server. A step takes what parties send in it, and then gives what they need for the next.

    A party of which nothing arrives in a step has dropped out. `SecureError` ends the sum: nothing is unmasked.

    Args:
        terms: what all parties agree on.
        size: the length of an upload.
    """

    terms: Terms
    size: int
    keys: dict[int, Keys] = field(default_factory=dict)
    sealed: dict[int, Mapping[int, bytes]] = field(default_factory=dict)
    signatures: dict[int, bytes] = field(default_factory=dict)
    revealed: dict[int, Mapping[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._arrived: set[int] = set()
        self._total = Residues.zeros(self.size)

    @cached_property
    def members(self) -> Members:
        """All parties that sent their keys: the result of step 1."""
        return read_members(self.terms, tuple(self.keys[party] for party in sorted(self.keys)))

    def take_keys(self, keys: Keys) -> None:
        """Step 1: a party's keys."""
        if not is_signed(keys.identity, keys.signature, self.terms.signed(keys)):
            raise SecureError(f"keys: those of party {keys.party} are not signed by it")
        known = {key for other in self.keys.values() for key in other[1:4]}
        if len(known.union(keys[1:4])) < len(known) + 3:
            raise SecureError(f"keys: party {keys.party} has one twice, or one of another party")
        for public in (keys.sealing, keys.masking):  # those that no party can agree on would stop all others
            agree(secrets.token_bytes(32), public, b"check")
        self.keys[keys.party] = keys

    def take_shares(self, party: int, sealed: Mapping[int, bytes]) -> None:
        """Step 2: a party's sealed shares, one for every neighbour."""
        if party not in self.keys or set(sealed) != set(self.members.neighbours(party)):
            raise SecureError(f"shares: party {party} did not send one share to each of its neighbours")
        self.sealed[party] = sealed

    def shares_for(self, party: int) -> dict[int, bytes]:
        """The sealed shares that a party receives: the result of step 2."""
        return {other: self.sealed[other][party] for other in self.members.neighbours(party) if other in self.sealed}

    def take_masked(self, party: int, upload: Residues) -> None:
        """Step 3: a party's masked upload, added to the others."""
        if party not in self.sealed or party in self._arrived:
            raise SecureError(f"masked sum: party {party} sent no shares before, or another upload")
        if len(upload) != self.size:
            raise SecureError(f"masked sum: party {party} sent {len(upload)} numbers, expected {self.size}")
        self._arrived.add(party)
        self._total.add(upload)

    @cached_property
    def survivors(self) -> tuple[int, ...]:
        """The parties whose masked uploads have arrived: the result of step 3."""
        survivors = tuple(sorted(self._arrived))
        self.members.check_survivors(survivors)
        return survivors

    def take_signature(self, party: int, signature: bytes) -> None:
        """Step 4: a party's signature of the survivors."""
        text = self.members.signed_survivors(self.survivors)
        if party not in self._arrived or not is_signed(self.keys[party].identity, signature, text):
            raise SecureError(f"survivors: party {party} did not sign the list")
        self.signatures[party] = signature

    def signatures_for(self, party: int) -> dict[int, bytes]:
        """The signatures that a party receives: the result of step 4."""
        others = self.members.neighbours(party)
        return {other: self.signatures[other] for other in others if other in self.signatures}

    def take_revealed(self, party: int, shares: Mapping[int, bytes]) -> None:
        """Step 5: a party's shares of what the masks are computed from."""
        allowed = set(self.members.group(party)) if party in self.signatures else set()
        if not set(shares) <= allowed or any(len(share) != LENGTH for share in shares.values()):
            raise SecureError(f"shares: party {party} revealed what it was not to reveal")
        self.revealed[party] = shares

    def total(self) -> Residues:
        """The sum of the uploads of the survivors: the result of step 5."""
        members, left = self.members, set(self.survivors)
        found = {party: self._secret(party) for party in self.sealed}
        for party, secret in found.items():
            if party in left:
                self._total.add_mask(secret, -1)
                continue
            if agreement_key(secret) != self.keys[party].masking:
                raise SecureError(
                    f"shares: those of party {party} do not give its secret; a party revealed a wrong one"
                )
            for other in left.intersection(members.neighbours(party)):
                self._total.add_mask(pair_seed(members, secret, party, other), 1 if party < other else -1)
        return self._total

    def _secret(self, party: int) -> bytes:
        """What was revealed of a party: the seed of its own mask if it survived, else its masking secret."""
        members, needed = self.members, self.members.shares(party)
        found = {
            members.points[other]: self.revealed[other][party]
            for other in members.group(party)
            if other in self.revealed and party in self.revealed[other]
        }
        if len(found) < needed:
            raise SecureError(f"shares: {len(found)} of party {party} were revealed, {needed} are needed")
        return join({point: found[point] for point in sorted(found)[:needed]}, 32)
