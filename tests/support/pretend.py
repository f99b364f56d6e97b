"""An accelerator that is not there: tensors on "pretend:0", whose memory is the CPU's.

Importing this module makes the device. An operation with CPU code of its own runs that code, so values are the CPU's
to the bit; all else is PyTorch's: tensors are plain tensors, with its views, autograd and modules. What a GPU refuses
is refused: operands on two devices, a generator of the CPU, `numpy()`. Its random numbers are a stream of its own.
`ran` counts operations and copies, `waits` those for which the host has to wait. LSTMs have no code here.

Import it before the first backward pass of a process: tests/conftest.py does. It uses private functions of PyTorch
(2.13); where they are missing, `missing` says so and there is no device.
"""

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

try:
    from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend
except ImportError as error:  # another version of PyTorch
    missing, _DummyBackendModule, _setup_privateuseone_for_python_backend = str(error), object, None  # type: ignore[misc, assignment]
else:
    missing = ""

ran: Counter[str] = Counter()
"""How often each operation ran on the device, and "copy cpu to pretend", "copy pretend to cpu" and "mask"."""

WAITS = {
    "aten._local_scalar_dense.default",
    "aten.equal.default",
    "aten.nonzero.default",
    "aten.masked_select.default",
    "aten.bincount.default",
    "aten._unique2.default",
    "aten.repeat_interleave.Tensor",
    "copy pretend to cpu",
    "mask",
}
"""What makes the host wait for a device: numbers read, copies to the host, results whose size depends on values."""

_CPU, _OTHER = 1, 12  # kDLCPU and kDLExtDev, DLPack's names for the CPU and for PyTorch's PrivateUse1
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Head(ctypes.Structure):
    """How a DLPack tensor begins."""

    _fields_ = (("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class Device(_DummyBackendModule):
    """What `torch.pretend` is: one device with one stream of random numbers."""

    def __init__(self) -> None:
        self.single = False  # whether the device has no float64, as MPS has none
        self.manual_seed_all(0)

    def manual_seed_all(self, seed: int) -> None:
        self.stream = Generator().manual_seed(seed).get_state()

    manual_seed = manual_seed_all

    def get_rng_state(self, device: Any = 0) -> Tensor:
        return torch.cat([self.stream, self.stream[:1]])  # as on a GPU, a state that no CPU generator takes

    def set_rng_state(self, state: Tensor, device: Any = 0) -> None:
        self.stream = Generator().set_state(state[:-1].clone()).get_state()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let the CPU's code draw from the device's stream."""
        outer = torch.get_rng_state()
        torch.set_rng_state(self.stream)
        try:
            yield
        finally:
            self.stream = torch.get_rng_state()
            torch.set_rng_state(outer)


device = Device()
_INDEXED = ("aten::index", "aten::_index_put_impl_")


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """What runs in a block, filled in at its end."""
    before, found = ran.copy(), Counter[str]()
    yield found
    found.update(ran - before)


def waits(found: Counter[str]) -> int:
    """How often the host waited for the device."""
    return sum(found[name] for name in WAITS)


def _relabel(x: Tensor, kind: int) -> Tensor:
    """A tensor of the other device in the same memory, which it keeps alive."""
    capsule = torch._C._to_dlpack(x)
    _Head.from_address(_pointer(capsule, b"dltensor")).kind = kind
    return torch._C._from_dlpack(capsule)


def _check(op: Any, values: dict[str, Any]) -> None:
    """Refuse what a GPU refuses; it reads, elementwise, a CPU tensor without axes, and indices on the CPU."""
    written = {a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    for name, value in values.items():
        for x in tree_leaves(value):
            if device.single and isinstance(x, Tensor) and x.device.type == "pretend" and x.dtype == torch.float64:
                raise TypeError(f"{op}: the pretend device has no float64, as MPS has none")
            if not isinstance(x, Tensor | Generator) or x.device.type != "cpu":
                continue
            if isinstance(x, Generator):
                raise RuntimeError(f"{op}: expected a 'pretend' device type for generator but found 'cpu'")
            number = x.dim() == 0 and torch.Tag.pointwise in op.tags and name not in written
            index = name == "indices" and op._schema.name in _INDEXED
            if not number and not index:
                raise RuntimeError(f"{op}: expected all tensors to be on one device, found {name} on cpu")


def _tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The CPU's code on the memory of tensors of the device."""
    ran[str(op)] += 1
    if op._schema.name in _INDEXED:  # a GPU counts what a mask chooses before it takes it
        ran["mask"] += any(x.dtype == torch.bool and x.device.type != "cpu" for x in tree_leaves(args) if _tensor(x))
    _check(op, dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs)
    origin: dict[int, tuple[Tensor, Tensor]] = {}

    def down(x: Tensor) -> Tensor:
        if x.device.type == "cpu":
            return x
        # An empty tensor may be one to resize, which memory of someone else's cannot.
        low = _relabel(x, _CPU) if x.numel() else torch.empty(x.shape, dtype=x.dtype)
        origin[id(low)] = low, x
        return low

    def up(low: Tensor) -> Tensor:
        _, x = origin.get(id(low), (low, None))
        if x is None:
            return _relabel(low, _OTHER)
        return x if x.shape == low.shape else x.set_(_relabel(low, _OTHER))  # type: ignore[call-overload]

    if "device" in kwargs:
        if device.single and kwargs.get("dtype") == torch.float64:
            raise TypeError(f"{op}: the pretend device has no float64, as MPS has none")
        kwargs["device"] = "cpu"
    args, kwargs = tree_map_only(Tensor, down, (args, kwargs))
    with device.drawing() if torch.Tag.nondeterministic_seeded in op.tags else nullcontext():
        return tree_map_only(Tensor, up, op(*args, **kwargs))


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy within the device, to it or from it: the one way between devices."""
    low = [x if x.device.type == "cpu" else _relabel(x, _CPU) for x in (source, target)]
    ran[f"copy {source.device.type} to {target.device.type}"] += 1
    low[1].copy_(low[0])
    return target


def _resize(x: Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Give an empty tensor memory of its own."""
    if x.numel() and x.shape != torch.Size(size):
        raise NotImplementedError(f"resize_ of {tuple(x.shape)} to {tuple(size)} on the pretend device")
    return x if x.shape == torch.Size(size) else x.set_(x.new_empty(size))  # type: ignore[call-overload]


def _clone(storage: torch.UntypedStorage, plain: Any = torch.UntypedStorage.clone) -> torch.UntypedStorage:
    """A copy of a storage, for deepcopy: PyTorch asks for an allocator, and the device has none."""
    if storage.device.type != "pretend":
        out: torch.UntypedStorage = plain(storage)
        return out
    return torch.empty(0, dtype=torch.uint8, device="pretend").set_(storage).clone().untyped_storage()


def _register() -> torch.library.Library:
    """Make the device; it lasts as long as what is returned."""
    _setup_privateuseone_for_python_backend("pretend", backend_module=device)
    library = torch.library.Library("aten", "IMPL")
    whole = ["aten::convolution", "aten::convolution_backward"]  # which choose their code by device
    for full in torch._C._dispatch_get_registrations_for_dispatch_key("CPU") + whole:
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        if space != "aten" or packet == "resize_":
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        aliases = [r.alias_info for r in op._schema.returns if r.alias_info is not None]
        if packet == "set_" or any(not alias.is_write for alias in aliases):  # these never touch the memory
            kernel = partial(op.redispatch, torch._C.DispatchKeySet(torch._C.DispatchKey.CPU))
        else:
            kernel = partial(_run, op)
        library.impl(name, kernel, "PrivateUse1")
    torch.UntypedStorage.clone = _clone  # type: ignore[method-assign, assignment]
    library.impl("_copy_from", _copy, "PrivateUse1")
    library.impl("resize_", _resize, "PrivateUse1")
    return library


_library = None if missing else _register()
