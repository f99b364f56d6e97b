"""Blocks under watch: every hook is called as ever, and what it must not touch is compared before and after.

A watched block is the same block of a subclass whose hooks check their arguments. Two ways of watching: `guard_hooks`
raises `ContractError` where a hook changes what it was given; `detach_gradients` hands out and takes back copies of
every gradient, so that a block that keeps one without cloning it computes something else.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import partial, wraps
from inspect import isfunction, signature
from itertools import product
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.method.aggregation import Gathering
from undrift.core.method.algorithm import SLOTS, Algorithm
from undrift.core.method.block import AnyBlock, Block
from undrift.core.method.view import End, ServerView, Step, View
from undrift.core.method.with_hooks import with_hooks
from undrift.core.model.oracle import Oracle
from undrift.core.model.samples import Samples
from undrift.core.records.report import is_declared

GIVEN = {"adjust": 0, "release": 0, "release_sum": 0}
"""Hooks that may change one argument in place: which one. `mean` may overwrite the weighted sum of its view."""

ADVICE = {
    "w": "the loop moves the model; return a direction, or clone w first",
    "w0": "other blocks read it; clone it first",
    "delta": "the upload is the loop's; put what you want to send into the upload tree",
    "lr": "settings are the loop's; scale the gradient instead",
    "sent": "all clients share it; clone it first",
    "kept": "a lost reply would leave it changed; clone it first and return the new one from finish",
    "state": "return the new state instead",
    "params": "the loop moves the model; return a displacement",
    "self": "a block is immutable and many clients share it: return state from begin, keep it through finish",
}


_CLONE = "a lost reply would leave it changed; let begin clone what the state changes"


class ContractError(AssertionError):
    """A promise of the contract that was broken; the message has the remedy."""


def guard_hooks(algorithm: Algorithm) -> Algorithm:
    """The same method, whose blocks raise `ContractError` where a hook changes what it was given, or draws globally."""
    return _shadow_blocks(algorithm, _guard)


def detach_gradients(algorithm: Algorithm, slot: str) -> Algorithm:
    """The same method, in which one slot gets and gives copies of all gradients and offsets."""
    return _shadow_blocks(algorithm, _detach, slot)


Hook = Callable[..., Any]
Visits = dict[int, Any]
Wrap = Callable[[str, AnyBlock, Hook, Visits], Hook]


def _shadow_blocks(algorithm: Algorithm, wrap: Wrap, only: str | None = None) -> Algorithm:
    """A copy of an algorithm whose blocks have wrapped hooks; it is made without the checks of a new one."""
    copy = object.__new__(Algorithm)
    for slot, block in algorithm.slots():
        watched = slot == only if only else algorithm.fills(slot)
        object.__setattr__(copy, slot, _shadow(slot, block, wrap) if watched else block)
    return copy


def _shadow(slot: str, block: AnyBlock, wrap: Wrap) -> AnyBlock:
    """A block of a subclass with wrapped hooks."""
    kind = type(block)
    bases = [base for base in SLOTS[slot].__mro__ if issubclass(base, Block)]
    hooks = {name for base in bases for name, hook in vars(base).items() if isfunction(hook)}
    hooks = {name for name in hooks if not name.startswith("_")} | (
        {"gather"} if isinstance(block, Gathering) else set()
    )
    visits: Visits = {}
    own = {name: wrap(slot, block, getattr(kind, name), visits) for name in sorted(hooks)}
    return with_hooks(block, own)


def _guard(slot: str, block: AnyBlock, call: Hook, visits: Visits) -> Hook:
    """A hook that may change nothing but its own state and the vector it was handed to change.

    Args:
        slot: the slot.
        block: the block.
        call: the hook.
        visits: what was sent and kept for each visit under way, which the state may alias.
    """
    hook = call.__name__
    where = f"{slot}={type(block).__name__}.{hook}"
    names = tuple(signature(call).parameters)[1:]

    @wraps(call)
    def watched(self: AnyBlock, *args: Any) -> Any:
        states = [id(x._states) for x in args if isinstance(x, View)]
        args = tuple(_restrict(x, block, where) if isinstance(x, View) else x for x in args)
        before = list(_watched_values(self, hook, names, args))
        streams, computed = _streams(), _gradients(args)
        try:
            out = call(self, *args)
        except FrozenInstanceError as error:
            raise ContractError(f"{where}: {error}: a view is frozen; {ADVICE['lr']}") from error
        for (name, old), (_, new) in zip(before, _watched_values(self, hook, names, args), strict=True):
            if not _same(old, new):
                hint = ADVICE.get(name.rpartition(".")[2], "arguments are read-only; clone it first")
                raise ContractError(f"{where} changed {name}: {hint}")
        for name, old, new in zip(("torch", "Python", "NumPy"), streams, _streams(), strict=True):
            if old != new:
                raise ContractError(f"{where} drew from {name}'s global generator: draw from view.random(purpose)")
        _check_declared(where, block, hook, out)
        _check_gradients(where, block, hook, _gradients(args) - computed)
        if hook == "finish":
            _apart_from(where, args[1], out)
        for view in (x for x in args if isinstance(x, View | ServerView)):
            _check_reports(where, block, view._reported or {})
        if hook == "begin":
            visits[states[0]] = _copy(args[:2]), args[:2]
        if hook == "finish" and (held := visits.pop(states[0], None)) and not _same(held[0], _copy(held[1])):
            raise ContractError(
                f"{slot}={type(block).__name__} changed what was sent or kept while it trained: {_CLONE}"
            )
        return out

    return watched


def _watched_values(
    self: AnyBlock, hook: str, names: tuple[str, ...], args: tuple[Any, ...]
) -> Iterator[tuple[str, Any]]:
    """What a hook must leave alone, by name, as copies."""
    yield "self", _copy(dict(vars(self)))
    yield "self", _copy({k: v for k, v in vars(type(self).__mro__[1]).items() if isinstance(v, dict | list | set)})
    for i, (name, value) in enumerate(zip(names, args, strict=False)):
        if isinstance(value, Samples):
            for f in fields(value):
                given = hook == "release" and f.name == "delta"  # the same vector as the argument
                if not f.name.startswith("_") and f.name not in ("random", "layout") and not given:
                    yield f"{name}.{f.name}", _copy(getattr(value, f.name))
        elif isinstance(value, ServerView):
            for field in ("params", "w0", "state"):
                yield f"{name}.{field}", _copy(getattr(value, field))
        elif GIVEN.get(hook) != i and name != "state":
            yield name, _copy(value)


def _restrict(view: View, block: AnyBlock, where: str) -> View:
    """A view that shows of labels and other slots only what the block declares to need."""
    needs = block.needs
    if not needs.labels:
        view = replace(
            view, _label_counts=partial(_fail_undeclared, f"{where} counts labels: declare Needs(labels=True)")
        )
    reported: dict[str, float | Tensor] | None = {} if view._reported is None else view._reported
    if isinstance(view, Step):
        reported = None
    return replace(view, _states=_Peers(view._states, set(needs.reads), where), _reported=reported)


def _fail_undeclared(message: str) -> Tensor | None:
    """What an undeclared need meets."""
    raise ContractError(message)


class _Peers(dict[str, object]):
    """The states of other slots, of which only declared ones may be read."""

    def __init__(self, states: Mapping[str, object], allowed: set[str], where: str) -> None:
        super().__init__(states)
        self.allowed, self.where = allowed, where

    def get(self, slot: str, default: Any = None) -> Any:
        """The state of a declared slot."""
        if slot not in self.allowed:
            _fail_undeclared(f'{self.where} reads the {slot} slot: declare Needs(reads=("{slot}",))')
        return super().get(slot, default)


def _check_declared(where: str, block: AnyBlock, hook: str, out: Any) -> None:
    """A model of a client's own comes only from a block that declares to personalize."""
    if hook == "personal" and out is not None and block.home != "personalization" and not block.personalizes:
        raise ContractError(f"{where} gives clients models of their own: declare personalizes = True")


def _gradients(args: tuple[Any, ...]) -> int:
    """How many gradients the client of a view has computed so far."""
    return sum(x._oracle.gradients for x in args if isinstance(x, Step))


def _check_gradients(where: str, block: AnyBlock, hook: str, count: int) -> None:
    """A perturbation declares the gradients that it computes."""
    if hook == "perturb" and count > block.gradients:
        raise ContractError(
            f"{where} computes {count} gradients in a step and declares {block.gradients}, so that costs are wrong: "
            f"let the property gradients return {count}"
        )


def _apart_from(where: str, end: End, out: Any) -> None:
    """What finish returns is no memory that the next client overwrites, or that another part of the upload is."""
    up, kept = out if isinstance(out, tuple) and len(out) == 2 else (None, None)
    for tree, (name, given) in product((kept, up), {"w": end.w, "delta": end.delta}.items()):
        memory = given.untyped_storage().data_ptr()
        for x in tree if isinstance(tree, tuple) else ():
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() == memory:
                raise ContractError(
                    f"{where} returns end.{name} itself, which the next client overwrites: return end.{name}.clone()"
                )


def _check_reports(where: str, block: AnyBlock, report: Mapping[str, Any]) -> None:
    """What is reported has declared names and finite numbers."""
    for name, values in report.items():
        if not is_declared(name, block.reports):
            raise ContractError(f"{where} reports {name!r}: declare it, reports = ({name!r}, ...)")
        for x in values if isinstance(values, Sequence) else (values,):
            if not isinstance(x, float | int | Tensor) or (isinstance(x, Tensor) and x.numel() != 1):
                raise ContractError(f"{where} reports {x!r} as {name!r}: report numbers, or tensors of one element")
            if not isfinite(x):
                raise ContractError(f"{where} reports {float(x)} as {name!r}: leave out what is not finite")


def _detach(_: str, __: AnyBlock, call: Hook, ___: Visits) -> Hook:
    """A hook that gets and gives copies."""
    hook = call.__name__

    @wraps(call)
    def apart(self: AnyBlock, *args: Any) -> Any:
        given = [_apart(x) if isinstance(x, View) else x for x in args]
        if hook in GIVEN or hook == "filter_offset":
            given[0] = given[0].clone()
        out = call(self, *given)
        return out.clone() if isinstance(out, Tensor) and out.grad_fn is None else out

    return apart


def _apart(view: View) -> Any:
    """A view whose gradients are new vectors."""
    copying: Any = _CopyingOracle(view._oracle)
    return replace(view, _oracle=copying)


class _CopyingOracle:
    """An oracle whose gradients are new vectors; everything else is the oracle's own."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)

    def gradient(self, offset: Tensor | None = None) -> Tensor:
        """A new vector at every call."""
        return self._oracle.gradient(offset).clone()


def _streams() -> tuple[object, ...]:
    """The states of all generators that a process shares."""
    legacy: Any = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), (legacy[1].tobytes(), legacy[2])


def _copy(x: Any) -> Any:
    """A value that later changes of the original do not reach."""
    if isinstance(x, Tensor):
        return x.detach().clone()
    if isinstance(x, dict):
        return {key: _copy(value) for key, value in x.items()}
    if isinstance(x, tuple | list):
        return [_copy(item) for item in x]
    if is_dataclass(x) and not isinstance(x, type | Block):
        return [_copy(getattr(x, f.name)) for f in fields(x)]
    if isinstance(x, set):
        return frozenset(x)
    return x


def _same(a: Any, b: Any) -> bool:
    """Whether two copies hold the same bits."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.shape == b.shape and torch.equal(a.nan_to_num(0), b.nan_to_num(0))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(_same, a, b))
    return bool(a is b or a == b)
