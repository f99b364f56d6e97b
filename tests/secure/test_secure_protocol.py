"""Secure sums: equal to the plain ones, hidden from the server and from too few parties, refused where they must be."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, hypergeom

from undrift.core.records.exact_sum import ExactSum
from undrift.secure.collector import Collector
from undrift.secure.exchange import STEPS, add_uploads
from undrift.secure.keys import agree, agreement_key, identity_key, is_signed, seal, sign, unseal
from undrift.secure.members import Keys, Members, Terms
from undrift.secure.party import Party, pair_seed
from undrift.secure.residues import Residues
from undrift.secure.settings import Secure, SecureError
from undrift.secure.shamir import LENGTH, join

TERMS = Terms(Secure(), "run, round 3")
SIZE = 40


def vectors(parties: int, seed: int = 0) -> dict[int, ExactSum]:
    """Uploads of very different sizes, weighted."""
    random, out = torch.Generator().manual_seed(seed), {}
    for party in range(parties):
        out[party] = ExactSum(SIZE)
        out[party].add(torch.randn(SIZE, generator=random) * 10.0 ** (party % 9 - 4), 1 + party / 7)
    return out


def send(inputs: dict[int, ExactSum]) -> Callable[[list[int]], Iterable[tuple[int, Residues]]]:
    return lambda left: ((party, Residues.of([inputs[party]])) for party in left if party in inputs)


def plain(inputs: dict[int, ExactSum], parties: Iterable[int]) -> ExactSum:
    total = ExactSum(SIZE)
    for party in parties:
        total.merge(inputs[party])
    return total


def make(count: int, terms: Terms = TERMS) -> tuple[dict[int, Party], Collector]:
    return {number: Party(number, terms) for number in range(count)}, Collector(terms, SIZE)


def up_to(step: str, count: int = 6, terms: Terms = TERMS) -> tuple[dict[int, Party], Collector]:
    """Parties and server after a step."""
    (parties, server), inputs = make(count, terms), vectors(count)
    for party in parties.values():
        server.take_keys(party.advertise())
    if step == "keys":
        return parties, server
    for number, party in parties.items():
        server.take_shares(number, party.share(server.members.keys))
    if step == "shares":
        return parties, server
    for number, party in parties.items():
        server.take_masked(number, party.mask(server.shares_for(number), Residues.of([inputs[number]])))
    if step == "masked":
        return parties, server
    for number, party in parties.items():
        server.take_signature(number, party.confirm(server.survivors))
    return parties, server


@pytest.mark.quick
@pytest.mark.parametrize("count", [3, 10])
def test_the_sum_is_the_plain_one(count: int) -> None:
    (parties, server), inputs = make(count), vectors(count)
    (found,) = add_uploads(parties, server, send(inputs)).sums([SIZE])
    assert server.survivors == tuple(range(count))
    assert torch.equal(found.pack().data, plain(inputs, range(count)).pack().data)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("count", "neighbours"), [(10, 128), (24, 16)])
def test_the_sum_is_the_plain_one_of_the_survivors(step: str, count: int, neighbours: int) -> None:
    """30 % of the parties drop out in a step; with all neighbours, and with a ring of fewer."""
    terms = replace(TERMS, setting=Secure(neighbours=neighbours))
    (parties, server), inputs = make(count, terms), vectors(count)
    lost = set(Random(count).sample(range(count), round(0.3 * count)))
    total = add_uploads(parties, server, send(inputs), lambda at, party: at == step and party in lost)
    left = sorted(set(range(count)) - lost) if STEPS.index(step) < 3 else list(range(count))
    assert list(server.survivors) == left
    (found,) = total.sums([SIZE])
    assert torch.equal(found.pack().data, plain(inputs, left).pack().data)


def test_drop_outs_in_every_step_of_one_sum() -> None:
    (parties, server), inputs = make(20), vectors(20)
    lost = dict(enumerate(STEPS))
    total = add_uploads(parties, server, send(inputs), lambda step, party: lost.get(party) == step)
    (found,) = total.sums([SIZE])
    assert server.survivors == tuple(range(3, 20))
    assert torch.equal(found.value(), plain(inputs, range(3, 20)).value())


def test_a_party_without_an_upload_drops_out() -> None:
    (parties, server), inputs = make(6), vectors(6)
    del inputs[2]
    (found,) = add_uploads(parties, server, send(inputs)).sums([SIZE])
    assert server.survivors == (0, 1, 3, 4, 5)
    assert torch.equal(found.value(), plain(inputs, inputs).value())


@pytest.mark.parametrize(("step", "why"), [("keys", "members: 2 parties"), ("masked", "survivors: 2 of 6 parties")])
def test_fewer_parties_than_allowed_are_not_unmasked(step: str, why: str) -> None:
    parties, server = make(6)
    with pytest.raises(SecureError, match=why):
        add_uploads(parties, server, send(vectors(6)), lambda at, party: at == step and party > 1)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("shares", "3 parties around party 0 are left, 4 are needed"),
        ("masked", "fewer than 4 parties around party 0 are left"),
        ("signatures", "fewer than 4 parties around party 0 signed the list"),
        ("revealed", "3 of party 0 were revealed, 4 are needed"),
    ],
)
def test_half_of_the_parties_are_too_few(step: str, why: str) -> None:
    parties, server = make(6)
    with pytest.raises(SecureError, match=why):
        add_uploads(parties, server, send(vectors(6)), lambda at, party: at == step and party > 2)


def test_a_party_refuses_to_unmask_a_short_list() -> None:
    """Whatever the server wants: the parties have the same limit."""
    parties, _ = up_to("masked")
    with pytest.raises(SecureError, match="a sum of fewer than 3 is not unmasked"):
        parties[0].confirm([0, 1])
    with pytest.raises(SecureError, match="party 1 is not in the list"):
        parties[1].confirm([0, 2, 3, 4])
    with pytest.raises(SecureError, match="at most once, in the order"):
        parties[2].confirm([2, 3, 4, 99])


def test_two_lists_of_survivors_are_noticed() -> None:
    """A server that wants both the secret and the seed of party 5 sends two lists, each to half of the parties."""
    parties, _ = up_to("masked")
    signatures = {n: party.confirm(range(6) if n < 3 else range(5)) for n, party in parties.items() if n < 5}
    for number in range(5):
        others = {other: signature for other, signature in signatures.items() if other != number}
        with pytest.raises(SecureError, match=r"did not sign the list that party \d has"):
            parties[number].reveal(others)


def test_signatures_of_one_list_only_are_not_enough() -> None:
    """Without those of the other half, each half is too small to reveal anything."""
    parties, _ = up_to("masked")
    signatures = {n: party.confirm(range(6) if n < 3 else range(5)) for n, party in parties.items() if n < 5}
    for half in (range(3), range(3, 5)):
        for number in half:
            with pytest.raises(SecureError, match="fewer than 4 parties around"):
                parties[number].reveal({other: signatures[other] for other in half if other != number})


def test_a_party_reveals_once_and_never_both_secrets() -> None:
    parties, server = up_to("signatures")
    shares = parties[0].reveal(server.signatures_for(0))
    assert set(shares) == set(range(6)) and {len(share) for share in shares.values()} == {LENGTH}
    assert shares[1] == parties[0].shares[1][LENGTH:]
    with pytest.raises(SecureError, match="party 0: step 5 of the protocol after step 5"):
        parties[0].reveal(server.signatures_for(0))
    with pytest.raises(SecureError, match="step 4 of the protocol after step 5"):
        parties[0].confirm(range(5))


def attack(colluding: int) -> tuple[Residues, ExactSum]:
    """The server and some parties pool all they know to unmask the last party, before anything is revealed.

    They know the masks between the victim and themselves. For the others and for the victim's own mask they join the
    shares that they hold.
    """
    count = 6
    (parties, server), inputs = up_to("shares", count), vectors(count)
    victim = count - 1
    view = parties[victim].mask(server.shares_for(victim), Residues.of([inputs[victim]]))
    for number in range(colluding):  # they read the shares that were sealed for them
        parties[number].mask(server.shares_for(number), Residues.zeros(SIZE))
    held = {server.members.points[number]: parties[number].shares[victim] for number in range(colluding)}
    secret, seed = (
        _guess({point: pair[part] for point, pair in held.items()})
        for part in (slice(0, LENGTH), slice(LENGTH, 2 * LENGTH))
    )
    view.add_mask(seed, -1)
    for other in range(count - 1):
        own = parties[other].masking if other < colluding else None
        pair = (
            pair_seed(server.members, own, other, victim)
            if own is not None
            else pair_seed(server.members, secret, victim, other)
        )
        view.add_mask(pair, 1 if other < victim else -1)
    return view, inputs[victim]


def _guess(shares: dict[int, bytes]) -> bytes:
    """What too few shares give, cut to the length of a secret."""
    try:
        return join(shares, 32)
    except SecureError:
        return join(shares, LENGTH)[-32:]


def test_one_party_fewer_than_the_threshold_cannot_unmask_with_the_server() -> None:
    assert TERMS.setting.shares(6) == 4
    view, upload = attack(colluding=4)
    (found,) = view.sums([SIZE])
    assert torch.equal(found.value(), upload.value()), "the attack works with enough parties"
    view, upload = attack(colluding=3)
    bits = np.unpackbits(np.frombuffer(view.to_bytes(), np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
    (found,) = view.sums([SIZE])
    assert not (found.value() == upload.value()).any()


def views(runs: int) -> np.ndarray:
    """The bytes that the server receives of party 0, which always sends the same upload, in many sums of three."""
    upload, seen = vectors(1)[0], []
    for _ in range(runs):
        parties = {number: Party(number, TERMS) for number in range(3)}
        keys = [party.advertise() for party in parties.values()]
        sealed = {number: party.share(keys) for number, party in parties.items()}
        mine = {number: sealed[number][0] for number in (1, 2)}
        seen.append(np.frombuffer(parties[0].mask(mine, Residues.of([upload])).to_bytes(), np.uint8))
    return np.stack(seen)


@pytest.mark.parametrize("runs", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_server_sees_random_bits_of_a_party(runs: int) -> None:
    """Sums with new keys: bytes have equal frequencies, every bit is set in half of them, no two are alike."""
    seen = views(runs)
    assert chisquare(np.bincount(seen.reshape(-1), minlength=256)).pvalue > 1e-6
    bits = np.unpackbits(seen, axis=1).astype(np.float64)
    assert np.abs(bits.mean(0) - 0.5).max() < 5.5 * 0.5 / np.sqrt(runs)
    following = np.corrcoef(bits[:-1].reshape(-1), bits[1:].reshape(-1))[0, 1]
    assert abs(following) < 5 / np.sqrt(bits[1:].size)
    assert len(np.unique(seen, axis=0)) == runs


def test_parties_and_uploads_that_the_server_does_not_expect_are_refused() -> None:
    server = up_to("masked")[1]
    with pytest.raises(SecureError, match="party 0 sent no shares before, or another upload"):
        server.take_masked(0, Residues.zeros(SIZE))
    with pytest.raises(SecureError, match="party 7 did not send one share to each"):
        server.take_shares(7, {})
    with pytest.raises(SecureError, match="party 0 did not sign the list"):
        server.take_signature(0, bytes(64))
    with pytest.raises(SecureError, match="party 0 revealed what it was not to reveal"):
        server.take_revealed(0, {1: bytes(LENGTH)})
    server = up_to("shares")[1]
    with pytest.raises(SecureError, match="party 0 sent 3 numbers, expected 40"):
        server.take_masked(0, Residues.zeros(3))


def test_a_wrong_share_is_noticed() -> None:
    (parties, server), inputs = up_to("shares"), vectors(6)
    for number in range(5):
        server.take_masked(number, parties[number].mask(server.shares_for(number), Residues.of([inputs[number]])))
    for number in range(5):
        server.take_signature(number, parties[number].confirm(server.survivors))
    for number in range(5):
        shares = parties[number].reveal(server.signatures_for(number))
        server.take_revealed(number, {party: bytes(LENGTH) if party == 5 else x for party, x in shares.items()})
    with pytest.raises(SecureError, match="those of party 5 do not give its secret"):
        server.total()


def test_keys_that_are_not_a_partys_own_are_refused() -> None:
    parties, server = up_to("keys")
    keys = list(server.members.keys)
    forged = keys[1]._replace(masking=agreement_key(secrets.token_bytes(32)))
    with pytest.raises(SecureError, match="those of party 1 are not signed by it"):
        server.take_keys(forged)
    with pytest.raises(SecureError, match="the keys of party 1 are not signed by it"):
        parties[0].share([keys[0], forged, *keys[2:]])
    with pytest.raises(SecureError, match="party 1 does not find its own keys"):
        parties[1].share([keys[0], forged, *keys[2:]])
    with pytest.raises(SecureError, match="two parties have a key in common"):
        parties[2].share([*keys, keys[0]._replace(party=9)])
    with pytest.raises(SecureError, match="every party must be there once"):
        parties[3].share(keys[::-1])


@pytest.mark.parametrize("kind", ["low order", "twice", "of another party"])
def test_keys_that_would_stop_all_parties_leave_out_their_own(kind: str) -> None:
    """No party can go on with such keys, so the server does not pass them on."""
    parties, server = up_to("keys", 5)
    own = Party(9, TERMS)
    keys, other = own.advertise(), server.members.keys[0]
    wrong = {"low order": bytes(32), "twice": keys.masking, "of another party": other.sealing}[kind]
    keys = keys._replace(sealing=wrong)
    keys = keys._replace(signature=sign(own.identity, TERMS.signed(keys)))
    with pytest.raises(SecureError, match=r"not one of X25519|party 9 has one twice, or one of another party"):
        server.take_keys(keys)
    with pytest.raises(SecureError, match=r"not one of X25519|two parties have a key in common"):
        parties[1].share([*server.keys.values(), keys])
    assert sorted(server.keys) == [0, 1, 2, 3, 4] and parties[2].share(server.members.keys)


def test_an_identity_that_is_known_from_elsewhere_cannot_be_replaced_by_the_server() -> None:
    """A server that puts itself in the place of party 1 signs keys of its own with an identity of its own."""
    own = [secrets.token_bytes(32) for _ in range(3)]
    known = {number: identity_key(secret) for number, secret in enumerate(own)}
    parties = [Party(number, TERMS, known, own[number]) for number in range(3)]
    keys = [party.advertise() for party in parties]
    pretended = Party(1, TERMS).advertise()
    assert set(parties[0].share(keys)) == {1, 2}
    with pytest.raises(SecureError, match="party 1 does not have the identity that is known"):
        parties[2].share([keys[0], pretended, keys[2]])


def test_sealed_shares_cannot_be_changed_or_exchanged() -> None:
    parties, server = up_to("shares")
    mine = server.shares_for(0)
    changed = bytes([mine[1][0] ^ 1]) + mine[1][1:]
    for wrong in ({**mine, 1: changed}, {**mine, 1: mine[2], 2: mine[1]}, {**mine, 1: server.shares_for(2)[1]}):
        party = Party.load(parties[0].dump())
        with pytest.raises(SecureError, match="a sealed share was changed on its way"):
            party.mask(wrong, Residues.zeros(SIZE))
    with pytest.raises(SecureError, match="party 9 is no neighbour of party 0"):
        parties[0].mask({**mine, 9: changed}, Residues.zeros(SIZE))


def test_nothing_of_one_round_serves_in_another() -> None:
    party, other = Party(0, TERMS), Party(0, replace(TERMS, label="run, round 4"))
    keys = party.advertise()
    assert is_signed(keys.identity, keys.signature, party.terms.signed(keys))
    assert not is_signed(keys.identity, keys.signature, other.terms.signed(keys))


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "signatures"])
def test_a_party_can_be_stored_between_steps(step: str) -> None:
    parties, _ = up_to(step)
    for party in parties.values():
        assert Party.load(party.dump()) == party
        assert party.masking.hex() not in repr(party) and party.seed.hex() not in repr(party)


def test_seals_keys_and_signatures() -> None:
    one, two = secrets.token_bytes(32), secrets.token_bytes(32)
    key = agree(one, agreement_key(two), b"a")
    assert key == agree(two, agreement_key(one), b"a") != agree(two, agreement_key(one), b"b")
    assert unseal(key, seal(key, b"text")) == b"text"
    assert is_signed(identity_key(one), sign(one, b"text"), b"text")
    assert not is_signed(identity_key(one), sign(one, b"text"), b"other") and not is_signed(b"short", b"", b"text")
    with pytest.raises(SecureError, match="is not one of X25519"):
        agree(one, bytes(32), b"a")


def ring(parties: int, neighbours: int) -> Members:
    keys = tuple(Keys(n, *(secrets.token_bytes(32) for _ in range(3))) for n in range(parties))
    return Members(Terms(Secure(neighbours=neighbours), ""), keys)


@pytest.mark.parametrize(("parties", "neighbours"), [(3, 128), (30, 128), (30, 8), (9, 8)])
def test_neighbours_are_mutual_and_as_many_as_set(parties: int, neighbours: int) -> None:
    members = ring(parties, neighbours)
    for party in range(parties):
        others = members.neighbours(party)
        assert len(set(others)) == len(others) == min(neighbours, parties - 1) and party not in others
        assert all(party in members.neighbours(other) for other in others)
        assert members.shares(party) == (len(others) + 1) // 2 + 1


def test_the_ring_follows_from_all_keys() -> None:
    """A server cannot choose who is whose neighbour without choosing the keys."""
    assert len({ring(30, 4).neighbours(0) for _ in range(5)}) > 1


def test_the_default_number_of_neighbours_suffices() -> None:
    """As the settings state: 1,000 parties, a fifth colluding, 30 % drop out by chance; union bound over all parties.

    A party's secret is lost if its neighbours, colluding, hold enough shares. A round is abandoned if of those around
    a party, itself included, too few are left.
    """
    count, group = 1000, 1 + Secure().neighbours
    needed = Secure().shares(group)
    lost = count * hypergeom.sf(needed - 1, count - 1, 200, group - 1)
    abandoned = count * hypergeom.cdf(needed - 1, count, 700, group)
    assert lost < 1e-12 and abandoned < 2e-4


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"least": 1}, "least"),
        ({"threshold": 0.4}, "threshold"),
        ({"threshold": 1.0}, "threshold"),
        ({"neighbours": 3}, "neighbours"),
    ],
)
def test_settings_that_would_not_protect_are_refused(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Secure(**wrong)  # type: ignore[arg-type]
