"""The parties of one secure sum: what all of them know, and who exchanges masks with whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import NamedTuple

from undrift.secure.keys import is_signed
from undrift.secure.settings import Secure, SecureError


class Keys(NamedTuple):
    """The public keys of a party in one sum.

    Args:
        party: its number.
        sealing: agrees on the keys by which shares are sealed.
        masking: agrees on the seeds of masks.
        identity: checks its signatures.
        signature: of all the above.
    """

    party: int
    sealing: bytes
    masking: bytes
    identity: bytes
    signature: bytes = b""


@dataclass(frozen=True)
class Terms:
    """What the parties of one sum agree on.

    Args:
        setting: thresholds and neighbours.
        label: names the run and the round: nothing that was made for one sum is of use in another.
    """

    setting: Secure
    label: str

    def signed(self, keys: Keys) -> bytes:
        """What a party signs of its keys."""
        return _digest(b"keys", repr(self).encode(), repr(keys[:4]).encode())


@dataclass(frozen=True)
class Members:
    """All parties of a sum with their keys, in the order of their numbers.

    Args:
        terms: what they agree on.
        keys: the keys of each.
    """

    terms: Terms
    keys: tuple[Keys, ...]

    def __post_init__(self) -> None:
        numbers = [keys.party for keys in self.keys]
        if numbers != sorted(set(numbers)):
            raise SecureError("members: every party must be there once, in the order of the numbers")
        if len(numbers) < self.terms.setting.least:
            raise SecureError(f"members: {len(numbers)} parties, and a sum needs {self.terms.setting.least} or more")
        public = [key for keys in self.keys for key in (keys.sealing, keys.masking, keys.identity)]
        if len(set(public)) < len(public):
            raise SecureError("members: two parties have a key in common")

    @cached_property
    def digest(self) -> bytes:
        """A hash of everything in it."""
        return _digest(b"members", repr(self.terms).encode(), *(repr(keys).encode() for keys in self.keys))

    @cached_property
    def by_party(self) -> Mapping[int, Keys]:
        """The keys by party."""
        return {keys.party: keys for keys in self.keys}

    @cached_property
    def points(self) -> Mapping[int, int]:
        """The point of each party's shares."""
        return {keys.party: place for place, keys in enumerate(self.keys, 1)}

    def neighbours(self, party: int) -> tuple[int, ...]:
        """With whom a party exchanges masks: all, or those nearest to it on a ring in an order drawn by the keys.

        Source: J. Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", 2020.
        """
        count, half = len(self._ring), self.terms.setting.neighbours // 2
        steps = range(1, count) if count <= 2 * half else [*range(1, half + 1), *range(count - half, count)]
        return tuple(self._ring[(self._places[party] + step) % count] for step in steps)

    @cached_property
    def _ring(self) -> list[int]:
        """The parties in an order that follows from all keys."""
        return sorted(self.points, key=lambda party: _digest(b"ring", self.digest, str(party).encode()))

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """The place of each party on the ring."""
        return {party: place for place, party in enumerate(self._ring)}

    def group(self, party: int) -> tuple[int, ...]:
        """Those among whom a party's secrets are shared: itself and its neighbours."""
        return (party, *self.neighbours(party))

    def shares(self, party: int) -> int:
        """How many shares give a party's secrets."""
        return self.terms.setting.shares(len(self.group(party)))

    def check_signatures(self, parties: Sequence[int], known: Mapping[int, bytes] | None) -> None:
        """Raise if the keys of a party are not signed by it.

        Args:
            parties: the parties to check.
            known: the identities of all parties, from a source other than the server; None takes those of the list,
                which protects against a server that follows the protocol.
        """
        for party in parties:
            keys = self.by_party[party]
            if known is not None and known.get(party) != keys.identity:
                raise SecureError(f"members: party {party} does not have the identity that is known")
            if not is_signed(keys.identity, keys.signature, self.terms.signed(keys)):
                raise SecureError(f"members: the keys of party {party} are not signed by it")

    def signed_survivors(self, survivors: Sequence[int]) -> bytes:
        """What parties sign of the list of those whose masked uploads have arrived."""
        return _digest(b"survivors", self.digest, repr(tuple(survivors)).encode())

    def check_survivors(self, survivors: Sequence[int]) -> None:
        """Raise if the list of those whose masked uploads have arrived cannot be unmasked."""
        if list(survivors) != sorted(set(survivors) & set(self.points)):
            raise SecureError(
                "survivors: parties of the members must be there at most once, in the order of the numbers"
            )
        if len(survivors) < self.terms.setting.least:
            raise SecureError(
                f"survivors: {len(survivors)} of {len(self.keys)} parties are left, and a sum of fewer than "
                f"{self.terms.setting.least} is not unmasked"
            )


read_members = lru_cache(maxsize=4)(Members)
"""A list of members: one for all parties of this process that were sent the same keys."""


def _digest(*texts: bytes) -> bytes:
    """A hash of texts, each with its length."""
    digest = sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.digest()
