"""Whether clients agree: cosines of their vectors, and linear CKA of their models' features."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undrift.core.model.flat_model import bind
from undrift.core.model.modules import eager, plain, plain_name
from undrift.core.records.place import placed_with
from undrift.core.tasks.evaluation import evaluating
from undrift.lens.spectrum import Vectors, rows

PENULTIMATE = "penultimate"
"""The name of the features that go into the last linear layer."""


def cosines(vectors: Vectors) -> Tensor:
    """The cosine of every pair of clients' vectors; zero if either vector is zero."""
    matrix = rows("cosines", vectors).double()
    norms = torch.linalg.vector_norm(matrix, dim=1, keepdim=True)
    units = torch.where(norms > 0, matrix / torch.where(norms > 0, norms, 1.0), 0.0)
    return (units @ units.T).clamp(-1, 1)


def off_diagonal(matrix: Tensor) -> dict[str, float]:
    """Mean, minimum and maximum of a symmetric matrix off its diagonal, and the share of negative entries."""
    size = len(matrix)
    if size < 2:
        raise ValueError(f"off_diagonal: a pair needs two clients, got a matrix of shape {tuple(matrix.shape)}")
    pairs = matrix[tuple(torch.triu_indices(size, size, offset=1))]
    negative = float((pairs < 0).double().mean())
    return {"mean": float(pairs.mean()), "min": float(pairs.min()), "max": float(pairs.max()), "negative": negative}


def features(module: nn.Module, inputs: Tensor, layers: Sequence[str] = (), batch: int = 250) -> dict[str, Tensor]:
    """A model's features, one row per input: the input of its classifier, or the outputs of chosen layers.

    Images (sample, channel, height, width) are averaged over their pixels, sequences (sample, place, feature) over
    their places. The model is in evaluation mode during the call. Of a layer that a pass calls several times, as tied
    ones, it is the last call; the classifier is the linear layer that is called last.

    Args:
        module: the model.
        inputs: its inputs; the first axis is the sample.
        layers: names of submodules, for example residual stages; empty means `PENULTIMATE`.
        batch: how many inputs are processed at once.
    """
    seen: dict[str, list[Tensor]] = {name: [] for name in layers or (PENULTIMATE,)}
    last: dict[str, Any] = {}
    hooks = [hook for name in seen for hook in _listen(module, name, last)]
    try:
        with evaluating(module), eager(module):
            for chunk in placed_with(module).ahead(torch.split(inputs, batch)):
                last.clear()
                module(chunk)
                for name, outputs in seen.items():
                    outputs.append(_find_output(module, name, last))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(batches).cpu() for name, batches in seen.items()}


def _find_output(module: nn.Module, name: str, last: Mapping[str, Any]) -> Tensor:
    """What a layer gave in its last call; raises if it has none, or gives no tensor."""
    if name not in last:
        raise ValueError(f"features: {type(module).__name__} does not call its layer {name!r}; choose another")
    gave = last[name]
    if not isinstance(gave, Tensor):
        raise ValueError(f"features: the layer {name!r} gives a {type(gave).__name__}, no tensor; choose another")
    return gave


def _listen(module: nn.Module, name: str, last: dict[str, Any]) -> list[Any]:
    """Note what a layer gives, or what the linear layers are given, of which the last call stays."""
    parts = {plain_name(part): layer for part, layer in module.named_modules()}
    if name == PENULTIMATE and name not in parts:
        linear = [part for part in parts.values() if isinstance(part, nn.Linear)]
        if not linear:
            raise ValueError(
                f"features: {type(module).__name__} has no linear layer; pass the names of layers as `layers`"
            )
        return [x.register_forward_pre_hook(lambda _, given: last.update({name: _pool(given[0])})) for x in linear]
    if name not in parts:
        known = ", ".join(filter(None, parts))
        raise ValueError(f"features: {type(module).__name__} has no layer {name!r}; it has {known}")
    return [parts[name].register_forward_hook(lambda _, __, gave: last.update({name: _pool(gave)}))]


def _pool(x: Any) -> Any:
    """Features as one row per sample, copied, since the next layer may write in place; what is no tensor, as it is."""
    if not isinstance(x, Tensor):
        return x
    if x.dim() == 3:
        return x.detach().mean(dim=1)
    return x.detach().flatten(2).mean(dim=2) if x.dim() > 3 else x.detach().reshape(len(x), -1).clone()


def client_features(
    module: nn.Module, models: Vectors, inputs: Tensor, layers: Sequence[str] = (), batch: int = 250
) -> list[dict[str, Tensor]]:
    """The features of every client's model on the same inputs; the module itself is not changed.

    Args:
        module: the architecture; buffers are taken from it.
        models: one vector of parameters per client, for example w + its update.
        inputs: the samples.
        layers: as for `features`.
        batch: as for `features`.
    """
    bound = bind(deepcopy(module))
    out = []
    for w in rows("client_features", models, bound.layout):
        bound.w.copy_(w)
        bound.place(bound.w)
        out.append(features(bound.module, inputs, layers, batch))
    return out


def outlets(module: nn.Module, inputs: Tensor) -> list[str]:
    """The names of a model's stages whose output is one tensor with a row for every input.

    Args:
        module: the model; the blocks of an `nn.Sequential` count as stages.
        inputs: a few, to see the output of each stage.
    """
    parts = {plain_name(name): part for name, part in module.named_modules()}
    suitable: dict[str, bool] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, gave: Any) -> None:
            suitable[name] = isinstance(gave, Tensor) and gave.dim() > 1 and len(gave) == len(inputs)

        return hook

    hooks = [parts[name].register_forward_hook(note(name)) for name in _stages(module)]
    try:
        with evaluating(module), eager(module):
            module(placed_with(module).to(inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return [name for name, fits in suitable.items() if fits]


def _stages(module: nn.Module) -> list[str]:
    """The outermost submodules of a model, and the blocks inside an `nn.Sequential`."""
    names: list[str] = []
    for name, part in plain(module).named_children():
        blocks = part.named_children() if isinstance(part, nn.Sequential) else ()
        names += [f"{name}.{n}" for n, block in blocks if list(block.children())] or [name]
    return names


def cka(x: Tensor, y: Tensor) -> float:
    """Linear CKA of two feature matrices on the same samples: ||Y^T X||^2 / (||X^T X|| ||Y^T Y||), columns centred.

    It is 1 if one is a rotation and scaling of the other; 0 if either is constant.

    Args:
        x: samples by features.
        y: the same samples by other features.
    """
    return float(cka_matrix([x, y])[0, 1])


def cka_matrix(features: Sequence[Tensor]) -> Tensor:
    """The linear CKA of every pair of feature matrices on the same samples."""
    _same("cka_matrix", features)
    centred = [x.double() - x.double().mean(dim=0) for x in features]
    if len(features[0]) <= max(x.shape[1] for x in features):
        grams = torch.stack([(x @ x.T).flatten() for x in centred])
        return normalise(grams @ grams.T)
    inner = torch.empty(len(features), len(features), dtype=torch.float64)
    for i, x in enumerate(centred):
        for j, y in enumerate(centred[: i + 1]):
            inner[i, j] = inner[j, i] = (y.T @ x).square().sum()
    return normalise(inner)


def hsic(features: Sequence[Tensor]) -> Tensor:
    """The unbiased HSIC of every pair of feature matrices on one batch of at least four samples.

    1 / (n (n - 3)) * (<K, L> + sum K sum L / ((n - 1) (n - 2)) - 2 / (n - 2) * <K 1, L 1>)

    K and L are the Gram matrices without their diagonals. The mean over batches is unbiased whatever their size, so
    `CKAStream` needs no matrix of all samples.
    """
    _same("hsic", features)
    count = len(features[0])
    if count < 4:
        raise ValueError(f"hsic: a batch must have 4 samples or more, got {count}; drop a shorter last batch")
    # Unbiased HSIC does not depend on the origin; centring only reduces rounding errors.
    centred = [x.double() - x.double().mean(dim=0) for x in features]
    grams = torch.stack([(x @ x.T).fill_diagonal_(0) for x in centred])
    ones = grams.sum(dim=2)
    sums = ones.sum(dim=1)
    flat = grams.flatten(1)
    whole = flat @ flat.T + torch.outer(sums, sums) / ((count - 1) * (count - 2)) - 2 / (count - 2) * (ones @ ones.T)
    return whole / (count * (count - 3))


def normalise(inner: Tensor) -> Tensor:
    """Inner products as cosines; zero where a length is zero (of unbiased estimates, not positive), nan if it is."""
    lengths = inner.diagonal().clamp(min=0).sqrt()
    scale = torch.outer(lengths, lengths)
    return torch.where(scale <= 0, 0.0, inner / scale)


def _same(name: str, features: Sequence[Tensor]) -> None:
    """Reject features that are not matrices over the same samples."""
    shapes = [tuple(x.shape) for x in features]
    if not shapes or any(len(shape) != 2 for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        raise ValueError(f"{name}: features must be matrices with one row for each of the same samples, got {shapes}")


class CKAStream:
    """Linear CKA between models over any number of samples: the unbiased HSIC of each batch, summed.

    Args:
        models: how many models are compared.
    """

    def __init__(self, models: int) -> None:
        self.total = torch.zeros(models, models, dtype=torch.float64)
        self.batches = 0

    def add(self, features: Sequence[Tensor]) -> None:
        """Add one batch: the features of every model on the same samples, at least four."""
        if len(features) != len(self.total):
            raise ValueError(f"CKAStream: expected the features of {len(self.total)} models, got {len(features)}")
        self.total += hsic(features)
        self.batches += 1

    def merge(self, other: "CKAStream") -> "CKAStream":
        """Add the batches that another stream saw."""
        if other.total.shape != self.total.shape:
            raise ValueError(f"CKAStream: {len(self.total)} models cannot be merged with {len(other.total)}")
        self.total += other.total
        self.batches += other.batches
        return self

    def matrix(self) -> Tensor:
        """The CKA of every pair of models."""
        if not self.batches:
            raise ValueError("CKAStream: no batch has been added yet; call add first")
        return normalise(self.total)


@dataclass(frozen=True, eq=False)
class Alignment:
    """The CKA of every pair of clients, by layer.

    Args:
        matrices: layer -> clients by clients.
    """

    matrices: Mapping[str, Tensor]

    def as_dict(self) -> dict[str, float]:
        """For each layer the mean, minimum and maximum CKA of two different clients: `stage1/mean`."""
        summaries = {layer: off_diagonal(matrix) for layer, matrix in self.matrices.items()}
        return {f"{layer}/{name}": summaries[layer][name] for layer in summaries for name in ("mean", "min", "max")}


def align(clients: Sequence[Mapping[str, Tensor]]) -> Alignment:
    """Linear CKA between clients, layer by layer.

    Args:
        clients: the result of `client_features`.
    """
    if len(clients) < 2:
        raise ValueError(f"align: a pair needs the features of two clients, got {len(clients)}")
    return Alignment({layer: cka_matrix([client[layer] for client in clients]) for layer in clients[0]})
