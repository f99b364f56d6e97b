"""Rules by part: different aggregation, personalization or optimizers for tensors by their names.

    Algorithm(local_optimizer=by_part({"head.*": LocalSGD(0.9), "*": LocalAdam()}))

Every block sees its part of the model as if that were the whole: vectors, layout and views hold the tensors that its
pattern names. The first pattern that fits a tensor counts; tensors that no pattern names have the slot's empty block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple, TypeVar, cast

from torch import Tensor

from undrift.core.method.aggregation import Aggregation, Summing, Weights
from undrift.core.method.block import (
    Adjusting,
    AnyBlock,
    Block,
    LocalOptimizer,
    Needs,
    Personalization,
    ServerOptimizer,
    join_needs,
)
from undrift.core.method.defaults import ByExamples
from undrift.core.method.view import End, ServerView, Start, Step, Sums
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.model.oracle import Oracle
from undrift.core.records.types import Array, Declared, Tree, Upload, kinds

ViewT = TypeVar("ViewT", Start, Step, End)
Parts = tuple[tuple[str, AnyBlock], ...]


@lru_cache(maxsize=64)
def split_layout(patterns: tuple[str, ...], layout: Layout) -> tuple[tuple[Tensor, Layout], ...]:
    """For every pattern where its tensors lie and their own layout; every pattern must name a tensor."""
    first = [next((i for i, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), -1) for name in layout.names]
    out = []
    for i, pattern in enumerate(patterns):
        places = [k for k, found in enumerate(first) if found == i]
        if not places:
            raise ValueError(
                f"by_part: no tensor is left for {pattern!r}; the model has {', '.join(layout.names)}, and the first "
                "pattern that fits a tensor counts"
            )
        names = {layout.names[k] for k in places}
        owners = tuple(layout.owners[k] for k in places) if layout.owners else ()
        own = Layout(tuple(layout.names[k] for k in places), tuple(layout.shapes[k] for k in places), owners)
        out.append((layout.mask(lambda name, _, names=names: name in names), own))  # type: ignore[misc]
    return tuple(out)


@lru_cache(maxsize=256)
def _join(declared: tuple[Declared, ...], sliced: bool) -> Declared:
    """One tree with the fields of several, "p0_m" for the field m of the first; vectors of a part may be arrays."""
    types: dict[str, Any] = {"vector": Array if sliced else Vector, "array": Array, "float": float, "int": int}
    named = [(f"p{i}_{name}", types[kind]) for i, tree in enumerate(declared) for name, kind in kinds(tree).items()]
    return cast(Declared, NamedTuple("ByPartTree", named)) if named else None


@dataclass(frozen=True)
class ByPart(Block[Any, Any, Any, Any, Any]):
    """Blocks of one kind, each for the tensors that its pattern names.

    On the wire and on the server a part's vectors have the length of the model; a client keeps its parts only.

    Args:
        parts: pattern and block.
    """

    parts: Parts = ()

    def __post_init__(self) -> None:
        for name in ("Server", "Client", "Sent", "Up"):
            declared = tuple(getattr(block, name) for _, block in self.parts)
            object.__setattr__(self, name, _join(declared, name == "Client"))
        for name in ("keeps_buffers", "personalizes"):
            object.__setattr__(self, name, any(getattr(block, name) for _, block in self.parts))
        self.needs  # noqa: B018  raises if no model fits all blocks
        object.__setattr__(self, "uses", reduce(or_, (block.uses for _, block in self.parts), Sums.NONE))
        object.__setattr__(self, "reports", tuple(dict.fromkeys(x for _, block in self.parts for x in block.reports)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parts,)

    def __repr__(self) -> str:
        return f"by_part({{{', '.join(f'{pattern!r}: {block!r}' for pattern, block in self.parts)}}})"

    @property
    def needs(self) -> Needs:
        """What its blocks need, together."""
        return join_needs({f"{pattern!r}: {block!r}": block for pattern, block in self.parts})

    def refuses(self, others: Mapping[str, object]) -> str:
        """What the first of its blocks refuses."""
        return next((reason for _, block in self.parts if (reason := block.refuses(others))), "")

    def _split(self, layout: Layout) -> list[tuple[int, AnyBlock, Tensor, Layout]]:
        found = split_layout(tuple(pattern for pattern, _ in self.parts), layout)
        return [(i, block, *found[i]) for i, (_, block) in enumerate(self.parts)]

    def _tree(self, name: str, i: int, whole: Tree, mask: Tensor | None) -> Tree:
        """A part's own tree, out of the joint one."""
        declared = getattr(self.parts[i][1], name)
        if declared is None or whole is None:
            return None
        values = [(getattr(whole, f"p{i}_{field}"), kind) for field, kind in kinds(declared).items()]
        return declared(*(_take(x, mask) if kind == "vector" else x for x, kind in values))  # type: ignore[no-any-return]

    def _joint(self, name: str, trees: Sequence[tuple[Tree, Tensor]]) -> Tree:
        """The joint tree of the parts' own; vectors get the length of the model unless a client keeps them."""
        declared = getattr(self, name)
        if declared is None:
            return None
        values = []
        for i, (tree, mask) in enumerate(trees):
            named = kinds(getattr(self.parts[i][1], name))
            for x, kind in zip(tree or (), named.values(), strict=True) if named else ():
                values.append(_embed(x, mask) if kind == "vector" and name != "Client" else x)
        return declared(*values)  # type: ignore[no-any-return]

    def init_server(self, w: Vector) -> Tree:
        """What the blocks keep before round 0, each for the whole model, of which it uses its part."""
        return self._first("Server", [block.init_server(w) for _, block in self.parts])

    def init_client(self, w: Vector) -> Tree:
        """What the blocks keep before a client's first round."""
        return self._first("Client", [block.init_client(w) for _, block in self.parts])

    def _first(self, name: str, trees: Sequence[Tree]) -> Tree:
        declared, blocks = getattr(self, name), [block for _, block in self.parts]
        own = [tree for block, tree in zip(blocks, trees, strict=True) if getattr(block, name) is not None]
        return None if declared is None else declared(*(x for tree in own for x in tree or ()))

    def send(self, view: ServerView[Any]) -> Tree:
        """What the blocks send."""
        split = self._split(view.layout)
        return self._joint("Sent", [(b.send(self._server_view(view, i, m, own)), m) for i, b, m, own in split])

    def begin(self, sent: Tree, kept: Tree, start: Start) -> tuple[Any, ...]:
        """Every block begins with its part, and may take its first step elsewhere in it."""
        states, entry = [], start.w0.clone()
        for i, block, mask, own in self._split(start.layout):
            view = replace(_part(start, mask, own), _entry=[])
            states.append(block.begin(self._tree("Sent", i, sent, mask), self._tree("Client", i, kept, mask), view))
            if view._entry:
                entry[mask] = view._entry[0]
                start.begin_at(entry)
        return tuple(states)

    def finish(self, state: tuple[Any, ...], end: End) -> tuple[Tree, Tree]:
        """Every block finishes with its part."""
        ups, kept = [], []
        for i, block, mask, own in self._split(end.layout):
            up, keep = block.finish(state[i], _part(end, mask, own))
            ups.append((up, mask))
            kept.append((keep, mask))
        return self._joint("Up", ups), self._joint("Client", kept)

    def receive(self, delta: Vector, up: Tree, view: ServerView[Any]) -> tuple[Vector, Tree]:
        """Every block receives its part."""
        out, states = delta.clone(), []
        for i, block, mask, own in self._split(view.layout):
            moved, after = block.receive(
                delta[mask], self._tree("Up", i, up, mask), self._server_view(view, i, mask, own)
            )
            out[mask] = moved
            states.append((after, mask))
        return out, self._joint("Server", states)

    def _server_view(self, view: ServerView[Any], i: int, mask: Tensor, own: Layout) -> ServerView[Any]:
        """The round as one part sees it."""
        return replace(
            view,
            params=view.params[mask],
            w0=view.w0[mask],
            setting=replace(view.setting, layout=own),
            state=self._tree("Server", i, view.state, mask),
            _sums={name: _take(x, mask) for name, x in view._sums.items()},
        )


@dataclass(frozen=True, repr=False)
class LocalOptimizerByPart(ByPart, LocalOptimizer[Any, Any, Any, Any, Any]):
    """Local optimizers, each for its part; weight decay is coupled or decoupled in all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        decoupled = {block.decoupled for _, block in self.parts if isinstance(block, LocalOptimizer)}
        if len(decoupled) > 1:
            raise TypeError(f"{self!r}: weight decay must be coupled in all parts or decoupled in all of them")
        object.__setattr__(self, "decoupled", decoupled == {True})

    @property
    def plain(self) -> bool:
        """Whether all are plain SGD."""
        return all(isinstance(block, LocalOptimizer) and block.plain for _, block in self.parts)

    def adjust(self, grad: Vector, state: tuple[Any, ...], step: Step) -> Vector:
        """The direction of every part."""
        for i, block, mask, own in self._split(step.layout):
            assert isinstance(block, LocalOptimizer)
            grad[mask] = block.adjust(grad[mask], state[i], _part(step, mask, own))
        return grad


@dataclass(frozen=True, repr=False)
class ServerOptimizerByPart(ByPart, ServerOptimizer[Any, Any, Any, Any, Any]):
    """Server optimizers, each for its part."""

    def shift(self, view: ServerView[Any]) -> Vector:
        """The model that is broadcast, part by part."""
        out = view.params.clone()
        for i, block, mask, own in self._split(view.layout):
            assert isinstance(block, ServerOptimizer)
            out[mask] = block.shift(self._server_view(view, i, mask, own))
        return out


@dataclass(frozen=True, repr=False)
class PersonalizationByPart(ByPart, Personalization[Any, Any, Any, Any, Any]):
    """Parts that are shared or stay with the client, each by a block of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for _, block in self.parts:
            assert isinstance(block, Personalization)
            if type(block).adjust is not Adjusting.adjust or block.tuning:
                raise TypeError(f"by_part: {block!r} trains a second model or tunes one, which is the whole model's")

    def shared(self, layout: Layout) -> Tensor:
        """Where the parts' blocks share."""
        return self._where(layout, lambda block, own: block.shared(own))

    def travels(self, layout: Layout, round: int, *, up: bool) -> Tensor:
        """Where the parts travel."""
        return self._where(layout, lambda block, own: block.travels(own, round, up=up))

    def _where(self, layout: Layout, ask: Callable[[Any, Layout], Tensor | None]) -> Tensor:
        """What the parts' blocks answer, true where they answer None or no pattern fits."""
        out = layout.mask(lambda *_: True)
        for _, block, mask, own in self._split(layout):
            inside = ask(block, own)
            if inside is not None:
                out[mask] = inside
        return out

    def start(self, params: Vector, kept: Tree, layout: Layout) -> Vector:
        """The model a client starts from, part by part."""
        out = params.clone()
        for i, block, mask, own in self._split(layout):
            assert isinstance(block, Personalization)
            out[mask] = block.start(params[mask], self._tree("Client", i, kept, mask), own)
        return out

    def active(self, step: Step) -> Tensor | None:
        """Where the parts' blocks let the model move."""
        out = step.layout.mask(lambda *_: True)
        for _, block, mask, own in self._split(step.layout):
            assert isinstance(block, Personalization)
            inside = block.active(_part(step, mask, own))
            if inside is not None:
                out[mask] = inside
        return None if bool(out.all()) else out

    def personal(self, params: Vector, kept: Tree, layout: Layout) -> Vector:
        """The model a client is evaluated with, part by part."""
        out = params.clone()
        for i, block, mask, own in self._split(layout):
            found = block.personal(params[mask], self._tree("Client", i, kept, mask), own)
            out[mask] = params[mask] if found is None else found
        return out


@dataclass(frozen=True, repr=False)
class AggregationByPart(ByPart, Summing[Any, Any, Any, Any, Any]):
    """Rules of sums, each for its part; the first one's weights also weigh running statistics.

    Every rule but the first adds a sum as long as the model.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = self._rules()
        extra = [_name(i, name) for i, rule in enumerate(rules) for name in (("",) * (i > 0) + rule.extra)]
        object.__setattr__(self, "extra", tuple(extra))
        object.__setattr__(self, "scalars", tuple(_name(i, name) for i, r in enumerate(rules) for name in r.scalars))

    def _rules(self) -> list[Summing[Any, Any, Any, Any, Any]]:
        rules = []
        for _, rule in self.parts:
            if not isinstance(rule, Summing):
                raise TypeError(
                    f"by_part: {rule!r} takes uploads one by one; parts need rules of sums, such as uniform"
                )
            rules.append(rule)
        return rules

    def weigh(self, upload: Upload, up: Tree, age: int) -> Weights:
        """The weights of all rules by name."""
        out: dict[str, float] = {}
        for i, rule in enumerate(self._rules()):
            own = self._tree("Up", i, up, None)
            out |= {_name(i, name): x for name, x in rule.all_weights(upload, own, age).items()}
        return out

    def check(self, up: Tree, examples: int, weights: Weights) -> None:
        """What every rule demands."""
        for i, rule in enumerate(self._rules()):
            names = ("", *rule.extra, *rule.scalars)
            rule.check(self._tree("Up", i, up, None), examples, {name: weights[_name(i, name)] for name in names})

    def mean(self, up: Tree, view: ServerView[Any]) -> Vector:
        """The mean of every part by its own rule."""
        out = view.weighted / (view.weight or 1.0)
        for i, rule, mask, own in self._split(view.layout):
            assert isinstance(rule, Summing)
            sums: dict[str, Any] = {"weighted": view.weighted[mask], "weight": view.weight}
            if i:
                sums = {"weighted": view.weighted_by(_name(i, ""))[mask], "weight": view.scalar(_name(i, ""))}
            sums |= {f"weights.{name}": view.scalar(_name(i, name)) for name in (*rule.extra, *rule.scalars)}
            sums |= {f"extra.{name}": view.weighted_by(_name(i, name))[mask] for name in rule.extra}
            inner = replace(self._server_view(view, i, mask, own), _sums=sums)
            out[mask] = rule.mean(self._tree("Up", i, up, mask), inner).to(out.dtype)
        return out


_KINDS: dict[type[AnyBlock], tuple[Callable[[Parts], AnyBlock], AnyBlock]] = {
    LocalOptimizer: (LocalOptimizerByPart, LocalOptimizer()),
    ServerOptimizer: (ServerOptimizerByPart, ServerOptimizer()),
    Personalization: (PersonalizationByPart, Personalization()),
    Aggregation: (AggregationByPart, ByExamples()),
}


def by_part(parts: Mapping[str, AnyBlock]) -> Any:
    """One block of several, each for the tensors that a pattern names.

    Args:
        parts: name pattern, such as "head.*", -> a local optimizer, a server optimizer, a personalization or an
            aggregation rule of sums, all of one kind. The first pattern that fits a tensor counts.

    Example:
        >>> from undrift.core import ByExamples
        >>> by_part({"head.*": ByExamples()})
        by_part({'head.*': ByExamples(), '*': ByExamples()})
    """
    blocks = list(parts.values())
    for kind, (make, rest) in _KINDS.items():
        if blocks and all(isinstance(block, kind) for block in blocks):
            whole = dict(parts) if "*" in parts else {**parts, "*": rest}
            return make(tuple(whole.items()))
    raise TypeError(
        f"by_part: give name patterns and blocks of one kind out of {', '.join(kind.__name__ for kind in _KINDS)}, got "
        f"{dict(parts)!r}"
    )


def _name(i: int, name: str) -> str:
    """The name of a part's sum: that of the first part's weight is the rule's own."""
    return name if i == 0 and not name else f"p{i}.{name}" if name else f"p{i}"


def _take(x: Any, mask: Tensor | None) -> Any:
    """The elements of a part, of a vector as long as the model; anything else as it is."""
    if isinstance(x, Tensor) and mask is not None and x.shape == mask.shape:
        return x[mask.to(x.device)]
    return x


def _embed(x: Tensor, mask: Tensor) -> Tensor:
    """A vector as long as the model, zero outside of the part."""
    if x.shape == mask.shape:
        return x
    out = x.new_zeros(mask.shape)
    out[mask.to(x.device)] = x
    return out


class _PartOracle:
    """The losses and gradients of the whole model at points of a part; the rest of the model stays where it is.

    Args:
        oracle: of the whole model.
        whole: where that is.
        mask: where the part lies.
    """

    def __init__(self, oracle: Oracle, whole: Vector, mask: Tensor) -> None:
        self.oracle, self.whole, self.mask = oracle, whole, mask

    def __getattr__(self, name: str) -> Any:
        return getattr(self.oracle, name)

    def gradient_at(self, point: Vector, batch: Any, of: Callable[[Tensor], Tensor] | None = None) -> Vector:
        """The part of the gradient at a point: see `Samples.gradient_at`."""
        return self.oracle.gradient_at(self._at(point), batch, of)[self.mask]

    def forward_at(self, point: Vector, batch: Any, *, evaluate: bool = False) -> Tensor:
        """The loss at a point: see `Samples.forward_at`."""
        return self.oracle.forward_at(self._at(point), batch, evaluate=evaluate)

    def _at(self, point: Vector) -> Vector:
        """The model with the part at a point."""
        out = self.whole.clone()
        out[self.mask] = point
        return out


def _part(view: ViewT, mask: Tensor, own: Layout) -> ViewT:
    """A visit as one part sees it; losses and gradients are those of the whole model, at points of the part."""
    vectors = {f.name: _take(getattr(view, f.name), mask) for f in fields(view) if f.name in ("w0", "w", "delta")}
    oracle = cast(Oracle, _PartOracle(view._oracle, getattr(view, "w", view.w0), mask))
    return replace(view, layout=own, _oracle=oracle, **vectors)
