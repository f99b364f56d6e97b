"""Every block and algorithm keeps the contract, and the contract catches those that do not."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from refusals import BAD, Bad
from registry import BLOCKS, HOSTS, SPECTRAL
from undrift import Algorithm, blocks
from undrift.algorithms import ALGORITHMS
from undrift.blocks import SAM
from undrift.core.block import Aggregation, Block, Correction, Perturbation
from undrift.core.vector import Vector
from undrift.testing import ContractError, check_algorithm, check_block

PAIRS = [(slot, block) for slot, instances in BLOCKS.items() for block in instances]


@pytest.mark.parametrize(("slot", "block"), PAIRS, ids=str)
def test_block_keeps_the_contract(slot: str, block: Block) -> None:
    check_block(block, slot, HOSTS.get(type(block)))


@pytest.mark.parametrize("spectral", SPECTRAL, ids=str)
def test_filter_keeps_the_contract(spectral: blocks.Spectral) -> None:
    check_algorithm(Algorithm(perturbation=SAM(0.1), spectral=spectral))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_keeps_the_contract(name: str) -> None:
    check_algorithm(ALGORITHMS[name]())


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.message[:40])
def test_bad_input_is_refused(bad: Bad) -> None:
    with pytest.raises(bad.error) as refused:
        bad.make(*bad.arguments)
    assert bad.message in str(refused.value)


def test_registry_holds_every_block() -> None:
    held = {type(block).__name__ for _, block in PAIRS}
    held |= {type(f).__name__ for s in SPECTRAL for f in (s.gradient, s.perturbation) if f is not None}
    assert held | {"Filter", "Spectral"} == set(blocks.__all__)


class Memory(NamedTuple):
    """A tree of one vector."""

    v: Vector


@dataclass(frozen=True)
class Undeclared(Correction):
    """Uploads what it did not declare in the right type."""

    Up = Memory

    def finish(self, local, run):
        return (run.delta,), None


@dataclass(frozen=True)
class WrongLength(Correction):
    """Uploads a vector that is too short."""

    Up = Memory

    def finish(self, local, run):
        return Memory(run.delta[:3]), None


@dataclass(frozen=True)
class Scribbler(Correction):
    """Changes what the server sent."""

    Server = Sent = Memory

    def init_server(self, w):
        return Memory(torch.zeros_like(w))

    def send(self, server):
        return server

    def begin(self, sent, kept, run):
        sent.v.add_(1.0)
        return sent


@dataclass(frozen=True)
class Forgetful(Correction):
    """Keeps state where no checkpoint sees it."""

    Client = Memory
    memory = {"calls": 0}  # noqa: RUF012

    def init_client(self, w):
        return Memory(torch.zeros_like(w))

    def correct(self, grad, local, run):
        self.memory["calls"] += 1
        return grad.mul_(1.0 + self.memory["calls"] * 1e-3)

    def finish(self, local, run):
        return None, local


@dataclass(frozen=True)
class Divider(Perturbation):
    """Divides by a norm that may be zero."""

    def perturb(self, local, run):
        gradient = run.gradient()
        return 0.1 * gradient / torch.linalg.vector_norm(gradient)


@dataclass(frozen=True)
class OrderDependent(Aggregation):
    """Combines in a way that depends on the order of uploads it has seen."""

    gathers = True

    def combine(self, uploads):
        total = torch.zeros_like(uploads[0].delta)
        for upload in sorted(uploads, key=id):
            total = total * 0.9 + upload.delta
        return total


class NotFrozen(Correction):
    """A block that is no dataclass of its own, and cannot be hashed."""

    __hash__ = None


@pytest.mark.parametrize(
    ("block", "slot", "promise"),
    [
        (Undeclared(), "drift", "drift must be a Memory|part"),
        (WrongLength(), "drift", "refused|length|vector"),
        (Scribbler(), "drift", "changed what it had received"),
        (Forgetful(), "drift", "differs|changed"),
        (Divider(), None, "not finite|refused|value is not finite"),
        (OrderDependent(), None, "another order|differs"),
        (NotFrozen(), "drift", "immutable"),
        (Correction(), None, "pass slot="),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Block) else "",
)
def test_contract_catches(block: Block, slot: str | None, promise: str) -> None:
    with pytest.raises(ContractError, match=promise):
        check_block(block, slot)
