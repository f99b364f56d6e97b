"""Stand-in data have the form of the real ones."""

import pytest
import torch

from undrift.data import SOURCES
from undrift.data.files.stand_in import stand_in


@pytest.mark.parametrize("name", SOURCES)
def test_form_is_that_of_the_source(name: str) -> None:
    source, data = SOURCES[name], stand_in(name, examples=1000)
    assert (data.kind, data.classes, len(data.train)) == (source.kind, source.classes, 1000)
    if data.kind == "image":
        assert data.shape == (len(source.mean), source.pixels, source.pixels)
        assert data.train.inputs.dtype == torch.uint8
    else:
        assert data.shape == (source.length,)
        assert int(data.train.inputs.max()) < source.symbols
    assert source.examples > 0
    assert torch.bincount(data.train.targets).max() <= 1 + 1000 // source.classes


@pytest.mark.quick
def test_natural_clients_have_owners() -> None:
    owners = stand_in("femnist", examples=1000).train.owners
    assert owners is not None
    assert len(torch.unique(owners)) == 200


def test_examples_differ_and_take_little_memory() -> None:
    data = stand_in("tiny-imagenet", examples=100_000)
    assert data.train.inputs.untyped_storage().nbytes() < 200_000
    assert not torch.equal(data.train.inputs[0], data.train.inputs[1])
    assert torch.equal(data.train.inputs[5], stand_in("tiny-imagenet", examples=100_000).train.inputs[5])
