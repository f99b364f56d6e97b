"""One party of a secure sum: a client, or a node with the sum of its clients.

The protocol is that of K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
2017, figure 4, with the check of the list of survivors. A party adds to its upload a mask of its own, and for every
neighbour a mask that the neighbour subtracts. At the end the other parties reveal either the seed of its own mask, if
its upload has arrived, or the secret by which the masks with its neighbours are computed, if it has not; never both.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from undrift.secure.keys import agree, agreement_key, identity_key, is_signed, seal, sign, unseal
from undrift.secure.members import Keys, Members, Terms, read_members
from undrift.secure.residues import Residues
from undrift.secure.settings import Secure, SecureError
from undrift.secure.shamir import LENGTH, split


@dataclass
class Party:
    """The state of a party; its methods are the steps of the protocol, in their order, once each.

    Args:
        number: its number.
        terms: what all parties agree on.
        known: the identities of all parties, from a source other than the server: see `Members.check_signatures`.
        identity: the secret of its signatures, if it is to last longer than one sum.

    The other fields are its secrets and what it has received.
    """

    number: int
    terms: Terms
    known: Mapping[int, bytes] | None = None
    identity: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    sealing: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    masking: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    step: int = 0
    keys: tuple[Keys, ...] = ()
    shares: dict[int, bytes] = field(default_factory=dict, repr=False)
    survivors: tuple[int, ...] = ()

    def advertise(self) -> Keys:
        """Step 1: its public keys."""
        self._enter(1)
        public = agreement_key(self.sealing), agreement_key(self.masking), identity_key(self.identity)
        keys = Keys(self.number, *public)
        return keys._replace(signature=sign(self.identity, self.terms.signed(keys)))

    def share(self, keys: Sequence[Keys]) -> dict[int, bytes]:
        """Step 2: a share of its secrets for every neighbour, sealed for it.

        Args:
            keys: those of all parties.
        """
        self._enter(2)
        self.keys = tuple(keys)
        members, own = self._members, self.number
        mine = members.by_party.get(own)
        if mine is None or mine.masking != agreement_key(self.masking) or mine.sealing != agreement_key(self.sealing):
            raise SecureError(f"members: party {own} does not find its own keys there")
        members.check_signatures(members.group(own), self.known)
        points = [members.points[party] for party in members.group(own)]
        masking, seed = (split(secret, members.shares(own), points) for secret in (self.masking, self.seed))
        pairs = {party: masking[members.points[party]] + seed[members.points[party]] for party in members.group(own)}
        self.shares = {own: pairs.pop(own)}
        return {party: seal(self._sealing_key(own, party), pair) for party, pair in pairs.items()}

    def mask(self, sealed: Mapping[int, bytes], upload: Residues) -> Residues:
        """Step 3: its upload with all masks, in place.

        Args:
            sealed: the sealed shares of its neighbours; those without one have dropped out.
            upload: its part of the sum.
        """
        self._enter(3)
        members, own = self._members, self.number
        if strangers := sorted(set(sealed) - set(members.neighbours(own))):
            raise SecureError(f"shares: party {strangers[0]} is no neighbour of party {own}")
        if len(sealed) + 1 < members.shares(own):
            raise SecureError(
                f"shares: {len(sealed) + 1} parties around party {own} are left, {members.shares(own)} are needed"
            )
        for other, text in sealed.items():
            try:
                pair = unseal(self._sealing_key(other, own), text)
            except SecureError as error:
                raise SecureError(f"{error}; it is that of party {other}") from error
            if len(pair) != 2 * LENGTH:
                raise SecureError(f"shares: party {other} sent {len(pair)} bytes, expected {2 * LENGTH}")
            self.shares[other] = pair
        for other in sealed:
            upload.add_mask(pair_seed(members, self.masking, own, other), 1 if own < other else -1)
        upload.add_mask(self.seed, 1)
        return upload

    def confirm(self, survivors: Sequence[int]) -> bytes:
        """Step 4: its signature of the list of those whose masked uploads have arrived.

        Args:
            survivors: the list that the server sent.
        """
        self._enter(4)
        members, own = self._members, self.number
        members.check_survivors(survivors)
        left = set(survivors)
        if own not in left:
            raise SecureError(f"survivors: party {own} is not in the list that it is to confirm")
        if unknown := sorted(left.intersection(members.neighbours(own)) - set(self.shares)):
            raise SecureError(f"survivors: party {own} has no share of party {unknown[0]}")
        if len(left.intersection(members.group(own))) < members.shares(own):
            raise SecureError(f"survivors: fewer than {members.shares(own)} parties around party {own} are left")
        self.survivors = tuple(survivors)
        return sign(self.identity, members.signed_survivors(self.survivors))

    def reveal(self, signatures: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 5: of each party around it one share: of the seed of its own mask if it survived, else of its secret.

        Args:
            signatures: of the list of survivors, by its neighbours; one of another list is refused.
        """
        self._enter(5)
        members, own, left = self._members, self.number, set(self.survivors)
        text = members.signed_survivors(self.survivors)
        others = left.intersection(members.neighbours(own), signatures)
        for other in sorted(others):
            if not is_signed(members.by_party[other].identity, signatures[other], text):
                raise SecureError(
                    f"survivors: party {other} did not sign the list that party {own} has; the server may have sent "
                    "different lists"
                )
        if len(others) + 1 < members.shares(own):
            raise SecureError(f"survivors: fewer than {members.shares(own)} parties around party {own} signed the list")
        return {party: pair[LENGTH:] if party in left else pair[:LENGTH] for party, pair in self.shares.items()}

    def dump(self) -> str:
        """Its state, secrets included, as JSON: it stays where the party is."""
        return json.dumps(asdict(self), default=bytes.hex)

    @classmethod
    def load(cls, text: str) -> Self:
        """The party of which `dump` wrote the state."""
        values = json.loads(text)
        values["terms"] = Terms(Secure(**values["terms"]["setting"]), values["terms"]["label"])
        values |= {name: bytes.fromhex(values[name]) for name in ("identity", "sealing", "masking", "seed")}
        values["keys"] = tuple(Keys(party, *map(bytes.fromhex, keys)) for party, *keys in values["keys"])
        values["survivors"] = tuple(values["survivors"])
        for name in ("known", "shares"):
            found = values[name]
            values[name] = None if found is None else {int(party): bytes.fromhex(x) for party, x in found.items()}
        return cls(**values)

    @property
    def _members(self) -> Members:
        return read_members(self.terms, self.keys)

    def _enter(self, step: int) -> None:
        """Begin a step, which must be the next one."""
        if self.step != step - 1:
            raise SecureError(f"party {self.number}: step {step} of the protocol after step {self.step}")
        self.step = step

    def _sealing_key(self, sender: int, receiver: int) -> bytes:
        """The key for the share that one party sends to another, one of which is this one."""
        members = self._members
        other = members.by_party[receiver if sender == self.number else sender].sealing
        return agree(self.sealing, other, b"shares %d %d " % (sender, receiver) + members.digest)


def pair_seed(members: Members, secret: bytes, own: int, other: int) -> bytes:
    """The seed of the mask that two parties share.

    Args:
        members: all parties.
        secret: the masking secret of one of them.
        own: that one.
        other: the other one.
    """
    label = b"mask %d %d " % (min(own, other), max(own, other)) + members.digest
    return agree(secret, members.by_party[other].masking, label)
