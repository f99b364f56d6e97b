"""The contract suite of Undrift on the plug-in's block, and the limiting case of its method."""

from undrift import Algorithm, make
from undrift.testing import check_algorithm, check_block
from undrift_example.blocks import Memory


def test_the_block_keeps_the_contract() -> None:
    check_block(Memory(0.1))


def test_the_method_is_found_by_its_name() -> None:
    assert make("fedmemory", mu=0.1) == Algorithm(objective=Memory(0.1))
    check_algorithm(make("fedmemory"))
