"""The arithmetic of every method is what it was, to the last bit."""

import json

import pytest

from golden.hashes import PATH, machine, measured


@pytest.mark.quick
def test_hashes_are_those_written_down():
    written = json.loads(PATH.read_text())
    hashes = written.pop("hashes")
    if written != machine():
        pytest.skip(f"bits are promised for one build and kind of machine: written on {written}")
    now = measured()
    differ = [name for name in hashes | now if hashes.get(name) != now.get(name)]
    assert not differ, "if the arithmetic was meant to change, run make golden and name these in the commit"
