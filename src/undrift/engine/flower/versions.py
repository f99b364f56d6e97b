"""The versions of the messages between server and nodes; nothing else knows which there are.

The server's question to a node is written in the oldest version, and names all that the server reads. The node answers
in the newest of them that it reads itself, and all further messages between the two have that version. So server and
nodes are updated one after the other, during a run: a node of the last release takes part where its messages can carry
the run, and is refused with the reason where they cannot.
"""

import re
from collections.abc import Sequence
from dataclasses import fields

from undrift.core.local.settings import Local
from undrift.core.method.algorithm import Algorithm

READS = (4, 6)
"""The versions that this program reads and writes: 4 is that of release 0.2.0, and 5 was in no release."""

OLDEST, NEWEST = READS[0], READS[-1]

_NAMES = """
ASAM Adagrad Adam AdaptiveAggregation AdaptiveMomentum Algorithm Alternating Average Bulyan ByAgreement
ByDiscrepancy ByExamples ByLastLoss ByLoss ByScore CalibratedLogits CommonRepresentation Consensus Contrast
CoordinateMedian Dampened Ditto FSA FedDyn Filters GeometricMedian HeavyBall Krum LastLossComplement Latest
LayerShrinking LocalAdam LocalAdamW LocalMomentum LocalMuon LocalSGD LossComplement MedianClip Mixture MomentumPath
Moreau Private PrivateNorms Proximal ProximalAscent QFair RestrictedLogits SAM Scaffold ScaffoldI ScoredSAM
ServerMomentum ServerSAM StaleGlobal TrimmedMean Tuned Uniform WarmSAM Yogi block_means cap_norm center
clip_coordinates gaussian gd high_pass high_pass_2d lap_d low_pass moving_average random_stop rescale
"""
_BLOCKS = frozenset(_NAMES.split())
"""The blocks and filters whose messages are the same in all versions."""

_SETTINGS = ("example_clip", "example_noise", "rank")
"""Settings of local training that nodes of version 4 would ignore."""


def choose_version(offered: Sequence[int], written: int) -> int:
    """The version in which a node answers the server: the newest that both read.

    Args:
        offered: the versions that the server's question names; none in the question of an old server.
        written: the version of the question.
    """
    return max({*offered} & {*READS}, default=written)


def find_newer(version: int, algorithm: Algorithm, local: Local, *, secure: bool = False) -> str:
    """What a run has that messages of a version cannot carry, in words; empty if there is nothing.

    Args:
        version: the version of the messages.
        algorithm: the method.
        local: the settings all clients share.
        secure: whether the nodes' sums are added by a protocol in which the server sees none of them.
    """
    if version == NEWEST:
        return ""
    new = {name: None for name in re.findall(r"(\w+)\(", repr(algorithm)) if name not in _BLOCKS}
    defaults = {f.name: f.default for f in fields(Local)}
    new |= {f"local.{name}": None for name in _SETTINGS if getattr(local, name) != defaults[name]}
    return ", ".join([*new, *(["a secure sum"] if secure else [])])


def explain_refusal(version: int, what: str) -> str:
    """The reason why a run needs newer messages, with the remedy.

    Args:
        version: the version that server and node have in common.
        what: what the run has that it cannot carry: see `find_newer`.
    """
    return f"message version {version} cannot carry {what}: update undrift where it is older ({NEWEST} can)"
