"""What a secure sum costs beside a plain one: processor time of one party and of the server, and bytes of one party.

All parties take part in all steps; only the first one masks a vector of full length, the others a single number, and
the server adds zeros for them: its work is that of a real round. Times are processor seconds on one thread. In a row
with `lost`, so many parties drop out after they sent their shares, the costliest moment for the server.

    python benchmarks/speed/secure.py --json > benchmarks/speed/results/secure.json
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from undrift.core.records.exact_sum import ExactSum
from undrift.engine.flower.secure_records import pack_keys
from undrift.secure.collector import Collector
from undrift.secure.members import Terms
from undrift.secure.party import Party
from undrift.secure.residues import Residues
from undrift.secure.settings import Secure

CASES = ((60_000, 10), (60_000, 100), (11_000_000, 10), (11_000_000, 100))
SHARE_LOST = 0.1
MOST = 5e9  # numbers that the server masks in a row, at most: about two minutes


class Watch:
    """Processor seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of a block."""
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


def plain(size: int, parties: int) -> float:
    """Seconds of a server that adds the uploads as they are."""
    upload, total, start = torch.randn(size), ExactSum(size), time.process_time()
    for _ in range(parties):
        total.add(upload, 3.0)
    total.value()
    return time.process_time() - start


def measure(size: int, count: int, lost: int) -> dict[str, Any]:
    """One row."""
    watch, terms = Watch(), Terms(Secure(), "benchmark")
    parties, server = [Party(number, terms) for number in range(count)], Collector(terms, size)
    upload = ExactSum(size)
    upload.add(torch.randn(size), 3.0)

    def name(number: int) -> str:
        return "party" if number == 0 else "others"

    keys = []
    for number, party in enumerate(parties):
        with watch(name(number)):
            keys.append(party.advertise())
        with watch("server"):
            server.take_keys(keys[-1])
    up, down = len(pack_keys(keys[0])), len(pack_keys(keys[0])) * count
    for number, party in enumerate(parties):
        with watch(name(number)):
            sealed = party.share(server.members.keys)
        up += sum(map(len, sealed.values())) * (number == 0)
        with watch("server"):
            server.take_shares(number, sealed)
    left, zeros = range(count - lost), Residues.zeros(size)
    for number in left:
        sealed = server.shares_for(number)
        down += sum(map(len, sealed.values())) * (number == 0)
        with watch(name(number)):
            masked = parties[number].mask(sealed, Residues.of([upload]) if number == 0 else Residues.zeros(1))
            sent = len(masked.to_bytes())
        up += sent * (number == 0)
        with watch("server"):
            server.take_masked(number, masked if number == 0 else zeros)
    for number in left:
        with watch(name(number)):
            signature = parties[number].confirm(server.survivors)
        with watch("server"):
            server.take_signature(number, signature)
    up, down = up + len(signature), down + 8 * len(server.survivors)
    for number in left:
        signatures = server.signatures_for(number)
        with watch(name(number)):
            shares = parties[number].reveal(signatures)
        if number == 0:
            up, down = up + sum(map(len, shares.values())), down + sum(map(len, signatures.values()))
        with watch("server"):
            server.take_revealed(number, shares)
    with watch("server"):
        server.total()
    return {
        "parameters": size,
        "parties": count,
        "neighbours": len(server.members.neighbours(0)),
        "lost": lost,
        "party_seconds": round(watch.seconds["party"], 3),
        "server_seconds": round(watch.seconds["server"], 3),
        "plain_server_seconds": round(plain(size, count - lost), 3),
        "up_bytes": up,
        "down_bytes": down,
        "plain_up_bytes": 4 * size,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a secure sum costs beside a plain one.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size, count in CASES:
        for lost in (0, round(SHARE_LOST * count)):
            masks = count + lost * min(count - lost, Secure().neighbours)
            if masks * size <= MOST:
                rows.append(measure(size, count, lost))
                print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
