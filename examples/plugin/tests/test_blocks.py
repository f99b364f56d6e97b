"""The contract suite of Undrift on the plug-in's block, and on its method."""

from example_plugin.blocks import Memory

from undrift import Algorithm, make
from undrift.testing import check_algorithm, check_block


def test_the_block_keeps_the_contract() -> None:
    """On unusual clients, bit for bit."""
    check_block(Memory(0.1))


def test_the_method_is_found_by_its_name() -> None:
    """And keeps the contract."""
    assert make("fedmemory", mu=0.1) == Algorithm(objective=Memory(0.1))
    check_algorithm(make("fedmemory"))
