"""Places: the one way to a device and back."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch
from torch import nn

from support import pretend
from undrift.core.model.random import seed_streams, set_streams, streams, with_seed
from undrift.core.records.place import HOST, Place, devices, home, place_of, placed_with
from undrift.core.records.types import Broadcast

Pair = namedtuple("Pair", "inputs targets")


def test_no_device_is_the_host() -> None:
    assert place_of() == place_of("cpu") == place_of(torch.device("cpu")) == HOST
    assert HOST.host and HOST.exact and "cpu" in devices()
    assert not Place(torch.device("mps")).exact


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta"])
def test_a_device_that_is_not_here_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match=f"device: '{device}' cannot be used here: .*; this machine has cpu"):
        place_of(device)


def test_the_share_of_memory_is_a_share() -> None:
    with pytest.raises(ValueError, match="resident must be a share from 0 to 1"):
        place_of("cpu", 1.5)


@pytest.mark.quick
def test_what_is_here_is_not_copied() -> None:
    x = torch.ones(3)
    module = nn.Linear(1, 1)
    assert home(x) is x and home(module) is module
    sent = home(Broadcast(1, x, x, x, {"drift": Pair(x, 2.0), "momentum": None}))
    assert sent.params is x and sent.parts["momentum"] is None
    assert isinstance(sent.parts["drift"], Pair) and sent.parts["drift"][0] is x
    batch = home((x, [x, "text"], {"a": x}))
    assert batch[0] is x and batch[1][1] == "text" and batch[2]["a"] is x
    assert next(HOST.ahead([batch])) is batch


def test_the_host_keeps_no_second_copy() -> None:
    assert not HOST.fits(torch.ones(2))


def test_streams_are_seeded_for_a_while() -> None:
    before = torch.get_rng_state()
    with with_seed(HOST.device, 3):
        first, state = torch.rand(2), streams(HOST.device)
        second = torch.rand(2)
        set_streams(HOST.device, state)
        assert torch.equal(torch.rand(2), second)
        seed_streams(HOST.device, 3)
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(bool(pretend.missing), reason="no pretend device")
def test_there_and_back() -> None:
    place, x = place_of("pretend"), torch.ones(3)
    there = place.to(Broadcast(1, x, x, x, {"drift": Pair(x, 2.0)}))
    assert there.params.device == place.device and not place.host and place.exact
    assert there.parts["drift"] is not None and there.parts["drift"][0].device == place.device
    assert home(there).params.device == HOST.device
    assert [batch[0].device for batch in place.ahead([(x,), (x,), (x,)])] == [place.device] * 3
    assert place.fits(x) and not Place(place.device, 0.0).fits(x)
    assert placed_with(place.to(nn.Linear(1, 1))) == place and placed_with(nn.ReLU()) == HOST


def test_types_of_batches_are_kept() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3), torch.zeros(2)])
    moved = Place(torch.device("meta")).to((packed, torch.zeros(2)))
    assert isinstance(moved[0], nn.utils.rnn.PackedSequence) and moved[0].data.device.type == "meta"
    assert moved[0].batch_sizes.device.type == "cpu"
    ordered = home(OrderedDict(b=torch.zeros(1), a=[torch.ones(1)]))
    assert type(ordered) is OrderedDict and list(ordered) == ["b", "a"] and isinstance(ordered["a"], list)
    counted = home(defaultdict(list, {"a": torch.ones(1)}))  # type: ignore[arg-type]
    assert counted.default_factory is list  # type: ignore[comparison-overlap]
