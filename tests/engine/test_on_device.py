"""Training on a device: the CPU's bits, and no more waiting than a plain loop."""

import pretend
import pytest
from devices import needed, rounds, visited

from undrift.algorithms import ALGORITHMS, make
from undrift.core.wire import fingerprint

pytestmark = needed


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_has_the_bits_of_the_cpu(name: str) -> None:
    algorithm = make(name)
    assert fingerprint(rounds(algorithm, "pretend")) == fingerprint(rounds(algorithm, "cpu"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_step_neither_waits_nor_copies(name: str) -> None:
    short, long = visited(make(name), 2), visited(make(name), 8)
    assert pretend.waits(long) == pretend.waits(short)
    assert long["copy cpu to pretend"] == short["copy cpu to pretend"]
    assert long["aten.convolution.default"] > short["aten.convolution.default"]
