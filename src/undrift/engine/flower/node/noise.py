"""The noise that a node's clients add in shares: from a secret of the node, since the server knows the run's seed.

The secret is in a file beside the clients' states, with the number of times that each round was begun. A round that is
begun again, after a crash of the server, has other noise: two sums with the same noise and other survivors would differ
by less noise than each of them has. It is one more release, so it is counted.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hmac import digest
from pathlib import Path

import torch
from torch import Tensor

from undrift.blocks.release.shares import Draw, PrivateShares
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import End
from undrift.core.method.with_hooks import with_hooks
from undrift.core.server.wire import WireError
from undrift.engine.worker.worker import Worker
from undrift.util.storage.files import make_private, read, write


class NodeNoise:
    """The secret of a node's noise, and how often it has begun each round.

    Args:
        path: the file; it is made, with a new secret, if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.round = path, 0
        self.key, self.begun = secrets.token_bytes(32), dict[int, int]()
        if path.exists():
            try:
                held = json.loads(read(path))
                self.key = bytes.fromhex(held["key"])
                self.begun = {int(round): int(count) for round, count in held["begun"].items()}
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise WireError("the file with the secret of this node's noise is damaged; delete it") from error

    def begin(self, round: int) -> None:
        """Begin a round, perhaps again; the file has it before anything is drawn.

        Args:
            round: the round.
        """
        self.round = round
        self.begun[round] = self.begun.get(round, 0) + 1
        make_private(self.path.parent)
        write(self.path, json.dumps({"key": self.key.hex(), "begun": self.begun}))

    def open(self, client: int) -> Draw:
        """Where a client draws its noise of this round from.

        Args:
            client: a number that is the client's own in this round.
        """
        label = f"noise {self.round} {self.begun[self.round]} {client}"
        return draw_secretly(digest(self.key, label.encode(), "sha256"))


def draw_secretly(seed: bytes) -> Draw:
    """Whole numbers from a seed's ChaCha20 stream: see `Draw`.

    Args:
        seed: 32 bytes.
    """
    from undrift.secure.keys import open_stream  # imported here because it needs cryptography

    stream = open_stream(seed)

    def draw(span: int, size: int) -> Tensor:
        words = stream(8 * size).view("<i8") & (span - 1)  # a copy: the stream overwrites what it gave
        return torch.from_numpy(words)

    return draw


@contextmanager
def own_noise(worker: Worker, path: Path, round: int) -> Iterator[None]:
    """Let a worker's clients draw their shares of noise from a node's secret; without shares nothing is changed.

    Args:
        worker: the worker.
        path: the file of the secret.
        round: the round that is begun.
    """
    job, release = worker.job, worker.job.algorithm.release
    if not isinstance(release, PrivateShares):
        yield
        return
    noise = NodeNoise(path)
    noise.begin(round)

    def open_noise(_: PrivateShares, end: End) -> Draw:
        return noise.open(end.random("share").initial_seed())

    secret = with_hooks(release, {"open_noise": open_noise})
    worker.job = replace(job, algorithm=replace(job.algorithm, release=secret))
    try:
        yield
    finally:
        worker.job = job


def check_masked(algorithm: Algorithm) -> None:
    """Raise if a method's uploads may leave a node in secure sums only.

    Args:
        algorithm: the method.
    """
    if algorithm.release.least:
        raise WireError(
            f"release={algorithm.release!r}: an upload has a share of the noise only, so this node takes part in "
            f"secure sums only; set secure = Secure(least={algorithm.release.least}) on the server"
        )
