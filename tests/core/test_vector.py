"""A model as one vector."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from undrift.core.model.flat_model import SINGLE, Layout, bind, bytes_of, double, unit


def net() -> Any:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))


def test_slices_are_views() -> None:
    layout = Layout(("a", "b"), ((2, 3), (4,)))
    v = torch.arange(10.0)
    a, b = layout.split(v)
    assert layout.size == 10 and a.shape == (2, 3) and b.tolist() == [6, 7, 8, 9]
    a[0, 0] = 5
    assert v[0] == 5
    assert layout.named(v)["b"].data_ptr() == b.data_ptr()
    assert layout.map(lambda t: t * 2, v).tolist() == (v * 2).tolist()
    assert layout.mask(lambda name, shape: len(shape) == 2).tolist() == [True] * 6 + [False] * 4
    with pytest.raises(ValueError, match="expected a vector of length 10, got shape"):
        layout.split(v[:9])


def test_a_bound_module_lives_in_its_vectors() -> None:
    module = net()
    outputs = module.eval()(torch.ones(2, 1, 6, 6))
    bound = bind(module)
    assert torch.equal(module(torch.ones(2, 1, 6, 6)), outputs)
    module.train()(torch.randn(5, 1, 6, 6))
    inputs = torch.randn(5, 1, 6, 6)
    gradient = bound.gradient(module(inputs).square().sum(), reuse=True)
    module(inputs).square().sum().backward()
    assert torch.equal(gradient, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))
    assert gradient is bound.g and bound.counts.tolist() == [3]
    other = bound.gradient(bound.w.new_ones(()) * sum(p.sum() for p in module.parameters()))
    assert other is not bound.g and bool((other == 1).all()) and not torch.equal(gradient, other)
    assert torch.equal(bound.buffers, torch.cat([module[1].running_mean, module[1].running_var]))
    bound.w.zero_()
    assert all(not p.any() for p in module.parameters())
    bound.check()


def test_the_backward_pass_ends_before_tensors_that_are_frozen() -> None:
    module = net()
    bound, inputs = bind(module), torch.randn(5, 1, 6, 6)
    whole = bound.gradient(module(inputs).square().sum())
    frozen = bound.layout.mask(lambda name, _: not name.startswith("3"))
    frozen[-1] = True  # one element of the last bias: its tensor is not frozen as a whole
    passed: list[bool] = []
    module[0].weight.register_hook(lambda _: passed.append(True))
    part = bound.gradient(module(inputs).square().sum(), wanted=bound.moving(~frozen))
    last = bound.layout.mask(lambda name, _: name.startswith("3"))
    assert torch.equal(part, torch.where(last, whole, 0.0)) and not passed
    nothing = bound.moving(torch.zeros_like(frozen))
    assert not bound.gradient(module(inputs).square().sum(), wanted=nothing).any()


@pytest.mark.parametrize(
    "break_it",
    [lambda m: m.double(), lambda m: m.to(memory_format=torch.channels_last), lambda m: m.requires_grad_(False)],
    ids=["double", "channels_last", "frozen"],
)
def test_a_lost_binding_is_noticed(break_it: Any) -> None:
    module = net()
    bound = bind(module)
    break_it(module)
    with pytest.raises(RuntimeError, match="no longer views of the flat vector"):
        bound.check()


def test_a_copy_is_not_bound() -> None:
    bound = bind(net())
    with pytest.raises(RuntimeError, match="no longer views"):
        bound._replace(module=copy.deepcopy(bound.module)).check()


def test_what_cannot_be_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameter"):
        bind(nn.ReLU())
    apart = net()
    apart[3].to("meta")
    with pytest.raises(ValueError, match=r"lie on several devices, cpu, meta; move the whole model to one of them"):
        bind(apart)
    with pytest.raises(ValueError, match=r"a parameter is complex; store it as real numbers, with torch.view_as_real"):
        bind(nn.Linear(2, 2, dtype=torch.complex64))


def test_parameters_of_several_dtypes_have_one_master() -> None:
    module = net()
    module[3].double()
    bound = bind(module)
    assert bound.w.dtype == torch.float64 and module[0].weight.dtype == torch.float32 and bound.copies
    bound.load(torch.full_like(bound.w, 0.5), bound.buffers, bound.counts)
    assert all(bool((p == 0.5).all()) for p in module.parameters())
    loss = sum(p.sum() for p in module.parameters())
    assert bound.gradient(loss, reuse=True).tolist() == bound.gradient(loss).tolist() == [1.0] * bound.layout.size
    bound.check()
    module.double()
    with pytest.raises(RuntimeError, match="no longer views"):
        bound.check()


def test_channels_last_weights_keep_their_strides_and_the_vector_its_order() -> None:
    plain = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 3))
    module = copy.deepcopy(plain).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first, second, inputs = bind(plain), bind(module), torch.randn(5, 3, 6, 6)
    assert torch.equal(first.w, second.w) and module[0].weight.stride() == (27, 1, 9, 3)
    for bound in (first, second):
        bound.load(bound.w * 0.5, bound.buffers, bound.counts)
    gradients = [each.gradient(each.module(inputs).square().sum()) for each in (first, second)]
    torch.testing.assert_close(*gradients)
    assert module[0].weight.stride() == (27, 1, 9, 3) and torch.equal(module[0].weight, plain[0].weight)  # type: ignore[arg-type]
    second.check()


def test_frozen_parameters_stay() -> None:
    module = net()
    module[0].requires_grad_(False)
    assert bind(module).layout.names == ("1.weight", "1.bias", "3.weight", "3.bias")


def test_unit() -> None:
    assert unit(torch.zeros(3)).tolist() == [0, 0, 0]
    torch.testing.assert_close(unit(torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))


def test_a_model_can_stand_elsewhere_for_a_while() -> None:
    bound = bind(net())
    point = torch.zeros_like(bound.w)
    bound.place(point)
    assert not any(p.any() for p in bound.module.parameters()) and bound.w.any()
    bound.place(bound.w)
    bound.check()


def test_an_unused_parameter_has_no_gradient() -> None:
    class Half(nn.Module):
        """Uses one of its two parameters."""

        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))

    bound = bind(Half())
    assert bound.gradient(bound.module.used.sum()).tolist() == [1, 1, 0, 0, 0]  # type: ignore[operator]


def test_double_precision_is_on_the_host_where_a_device_has_none() -> None:
    x = torch.ones(2)
    assert double(x).dtype == torch.float64 and double(x).device == x.device and "mps" in SINGLE


def test_the_bytes_of_a_tensor_do_not_depend_on_its_strides() -> None:
    """NumPy gives an empty array, and torch one element, strides of 0, which a view of bytes refuses."""
    empty, one = torch.from_numpy(np.ndarray((0,), np.int64, b"", strides=(0,)).copy()), torch.ones(()).expand(1)
    table = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    assert bytes_of(empty) == b"" and bytes_of(one) == bytes_of(torch.ones(1)) == np.float32(1).tobytes()
    assert bytes_of(table.t()) == bytes_of(table.t().clone()) != bytes_of(table)
    assert bytes_of(torch.tensor(True)) == b"\x01" and len(bytes_of(table)) == 12
