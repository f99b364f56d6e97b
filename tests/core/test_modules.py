"""Compiled models have the names, the hooks and the gradients of the plain ones."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.core.model.flat_model import bind
from undrift.core.model.modules import eager, is_compiled, load_plain, plain, plain_copy, plain_name, plain_state
from undrift.core.model.oracle import Oracle
from undrift.core.model.random import generator
from undrift.models import head
from undrift.models.start import fit, freeze

INPUTS, LABELS = torch.randn(10, 6, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


class Net(nn.Module):
    """Two layers; one may be compiled apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x).relu())
        return out


def part(backend: str) -> Net:
    model = Net()
    model.first = torch.compile(model.first, backend=backend)  # type: ignore[assignment]
    return model


def in_place(backend: str) -> Net:
    model = Net()
    model.compile(backend=backend)
    return model


def whole(backend: str) -> nn.Module:
    return torch.compile(Net(), backend=backend)  # type: ignore[return-value]


def trained(model: nn.Module) -> Tensor:
    """A few steps with a perturbation, then one with a hook that is added after the compilation."""
    bound = bind(model)
    asked = Oracle(bound, lambda batch: cross_entropy(bound.module(batch[0]), batch[1]), partial(generator, 0, 0, 0))
    for step in range(4):
        asked.next(step, (INPUTS, LABELS))
        gradient = asked.gradient().clone()
        bound.w.sub_(asked.gradient(0.1 * gradient), alpha=0.1)
    assert bound.layout.names == ("first.weight", "first.bias", "last.weight", "last.bias")
    asked.tap("first")
    asked.tap("last", inputs=True)
    asked.next(4, (INPUTS, LABELS))
    bound.w.sub_(asked.gradient(), alpha=0.1)
    assert torch.equal(asked.seen["first"].relu(), asked.seen["last:inputs"])
    asked.release()
    bound.check()
    return bound.w


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("compiled", [whole, in_place, part])
def test_a_compiled_model_trains_as_the_plain_one(compiled: Any) -> None:
    torch.compiler.reset()
    torch.testing.assert_close(trained(compiled("aot_eager")), trained(Net()), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_inductor_gives_the_plain_model() -> None:
    torch.testing.assert_close(trained(whole("inductor")), trained(Net()), rtol=0, atol=1e-6)


@pytest.mark.quick
def test_names_are_those_of_the_plain_model() -> None:
    model, net = whole("eager"), Net()
    assert plain_name("_orig_mod.a._orig_mod.b") == "a.b" and plain(model) is model._orig_mod and plain(net) is net
    assert is_compiled(model) and is_compiled(part("eager")) and is_compiled(in_place("eager")) and not is_compiled(net)
    assert list(plain_state(model)) == list(net.state_dict()) and head(model) == ("last.*",)
    load_plain(model, {name: x + 1 for name, x in net.state_dict().items()})
    assert torch.equal(model._orig_mod.last.bias, net.last.bias + 1)  # type: ignore[arg-type, union-attr]
    assert fit(model, net.state_dict()) == list(net.state_dict()) and torch.equal(
        model._orig_mod.last.bias,  # type: ignore[arg-type, union-attr]
        net.last.bias,
    )
    freeze(model, ["first.*"])
    assert bind(model).layout.names == ("last.weight", "last.bias")
    wide = nn.Conv2d(2, 2, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert plain_copy(wide)["weight"].is_contiguous()
    with eager(net):
        pass
