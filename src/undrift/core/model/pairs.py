"""Adapters in a layout: the pairs of factors whose product is added to a frozen weight, found by their names.

A layer computes with W + s B A. Names are those of peft: `lora_A` is A, (r, d_in), and `lora_B` is B, (d_out, r), with
anything behind them; of embeddings `lora_embedding_A` and `lora_embedding_B`. A model of your own that uses these names
has adapters, too.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from undrift.core.model.flat_model import Layout, Vector

_FACTOR = re.compile(
    r"(?:(?P<layer>.*)\.)?lora_(?P<embedding>embedding_)?(?P<role>[AB])(?P<rest>(?:\.[^.]+)*?)"
    r"(?:\.(?P<part>0\.frame|original0|original1))?"
)
_PARTS = {"0.frame": "B", "original0": "core", "original1": "scales"}
_TRANSPOSED = ("Conv1D", "Embedding")


@dataclass(frozen=True)
class Pair:
    """The two factors of one adapted weight, by their positions in a layout.

    Args:
        layer: the name of the layer.
        a: the position of A, (r, d_in).
        b: the position of B, (d_out, r).
        zero: the position of the factor that starts at zero: B, but A of an embedding.
        base: the position of W, if the model trains it; None if it is frozen.
        transposed: W is stored as (d_in, d_out), as in GPT-2's Conv1D and in embeddings.
        core: the position of the matrices between B and A, (h, r / h, r / h), of a model with `add_cores`.
        scales: the position of their factors, (h).
    """

    layer: str
    a: int
    b: int
    zero: int
    base: int | None = None
    transposed: bool = False
    core: int | None = None
    scales: int | None = None

    @property
    def other(self) -> int:
        """The position of the factor that starts at random."""
        return self.a if self.zero == self.b else self.b

    def factors(self, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
        """B and A as matrices, from the tensors of a vector; views."""
        return tensors[self.b].flatten(1), tensors[self.a].flatten(1)

    def stored(self, product: Tensor) -> Tensor:
        """A matrix (d_out, d_in) as W is stored, or the other way round."""
        return product.T if self.transposed else product


@lru_cache(maxsize=64)
def find_pairs(layout: Layout, cores: bool = False) -> tuple[Pair, ...]:
    """The pairs of factors among a model's trainable tensors, in their order.

    Args:
        layout: the names and shapes of the tensors.
        cores: pairs with a core between the factors, whose product is B C A, instead of pairs without.

    Raises:
        ValueError: there is no such pair, or a factor without the other.

    Example:
        >>> find_pairs(Layout(("up.lora_A", "up.lora_B", "head"), ((2, 8), (5, 2), (3,))))
        (Pair(layer='up', a=0, b=1, zero=1, base=None, transposed=False, core=None, scales=None),)
    """
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for i, (name, shape) in enumerate(zip(layout.names, layout.shapes, strict=True)):
        fits = _FACTOR.fullmatch(name.replace("parametrizations.", ""))
        if fits and (len(shape) > 1 or fits["part"]):
            key = fits["layer"] or "", fits["embedding"] or "", fits["rest"]
            found.setdefault(key, {})[_PARTS[fits["part"]] if fits["part"] else fits["role"]] = i
    if not found:
        raise ValueError(
            "the model trains no adapter: give it lora_A and lora_B, with peft.get_peft_model or as "
            f"undrift.models.AdaptedLinear has them; it trains {', '.join(layout.names)}"
        )
    pairs = tuple(_pair(layout, *key[:2], roles) for key, roles in found.items())
    if wrong := next((pair.layer for pair in pairs if (pair.core is not None) != cores), None):
        raise ValueError(
            f"{wrong} has no core between its factors; call undrift.models.add_cores(model) where the model is made"
            if cores
            else f"{wrong} has a core between its factors: use fed-sb, ravan or fedavg, or leave out add_cores"
        )
    return pairs


def _pair(layout: Layout, layer: str, embedding: str, roles: dict[str, int]) -> Pair:
    """One pair, from the positions of its factors."""
    if not {"A", "B"} <= set(roles):
        raise ValueError(
            f"{layout.names[min(roles.values())]} is trained without its other factor: let both require a gradient, "
            "and the method freezes the one that it does not train"
        )
    a, b = roles["A"], roles["B"]
    if layout.shapes[a][0] != prod(layout.shapes[b][1:]):
        raise ValueError(f"{layer}: lora_A is {layout.shapes[a]} and lora_B {layout.shapes[b]}: their ranks differ")
    name = f"{layer}.base_layer.weight".removeprefix(".")
    base = layout.names.index(name) if name in layout.names else None
    owner = layout.owners[base] if base is not None and layout.owners else ""
    transposed, core, scales = bool(embedding) or owner in _TRANSPOSED, roles.get("core"), roles.get("scales")
    return Pair(layer, a, b, a if embedding else b, base, transposed, core, scales)


@lru_cache(maxsize=64)
def mask_of(layout: Layout, role: str, cores: bool = False) -> Tensor:
    """A boolean vector, true on the factors or weights of a role in every pair.

    Args:
        layout: the names and shapes of the tensors.
        role: "a", "b", "zero", "other", "base", "core" or "scales".
        cores: as of `find_pairs`.
    """
    places = {getattr(pair, role) for pair in find_pairs(layout, cores)}
    names = {layout.names[i] for i in places if i is not None}
    return layout.mask(lambda name, _: name in names)


def product_norm(b: Tensor, a: Tensor) -> float:
    """The Frobenius norm of B A in double precision, from two matrices as small as the rank."""
    left, right = b.double().T @ b.double(), a.double() @ a.double().T
    return float((left * right.T).sum().clamp(min=0).sqrt())


def align_signs(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Singular vectors with signs of their own: in every column of `u` the entry of largest magnitude is positive.

    Args:
        u: left vectors, in columns.
        v: right vectors, in rows.
    """
    largest = u.gather(0, u.abs().argmax(dim=0, keepdim=True))
    signs = torch.where(largest < 0, -1.0, 1.0).to(u.dtype)
    return u * signs, v * signs.T


def truncate(b: Tensor, a: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest singular values of B A, and their vectors: U (d_out, rank), S (rank), V^T (rank, d_in).

    QR of both factors and the decomposition of a matrix as small as their common dimension, in double precision.

    Args:
        b: (d_out, k).
        a: (k, d_in).
        rank: how many to take.
    """
    q, r = torch.linalg.qr(b.double())
    p, t = torch.linalg.qr(a.double().T)
    u, s, v = torch.linalg.svd(r @ t.T)
    u, v = align_signs((q @ u)[:, :rank], (v @ p.T)[:rank])
    return u, s[:rank], v


def write_pairs(layout: Layout, v: Vector, values: dict[int, Tensor]) -> Vector:
    """A copy of a vector with other values for some of its tensors.

    Args:
        layout: the names and shapes of the tensors.
        v: the vector.
        values: position of a tensor -> its values, of any shape with as many elements.
    """
    out = v.clone()
    tensors = layout.split(out)
    for i, x in values.items():
        tensors[i].copy_(x.reshape(layout.shapes[i]))
    return out
