"""The arithmetic of every method is what it was, to the last bit."""

import json

import pytest

from golden.hashes import NAMES, PATH, machine, measure

WRITTEN = json.loads(PATH.read_text())
HASHES = WRITTEN.pop("hashes")


def test_every_method_and_composition_has_a_hash() -> None:
    assert set(HASHES) == set(NAMES), "run make golden"


@pytest.mark.quick(by=lambda name: name)
@pytest.mark.parametrize("name", NAMES)
def test_a_hash_is_the_one_written_down(name: str) -> None:
    if machine() != WRITTEN:
        pytest.skip(f"bits are promised for one build and kind of machine: written on {WRITTEN}")
    assert measure(name) == HASHES[name], "if the arithmetic was meant to change, run make golden and name it"
