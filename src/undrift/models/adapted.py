"""Low-rank adapters on linear layers, and a perceptron of such layers: adapters without another package."""

import re
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from undrift.models.mlp import MLP


class AdaptedLinear(nn.Module):
    """A linear layer whose weight is frozen, with a low-rank adapter: y = W x + b + alpha/r B A x.

    A is random and B zero, so that a new adapter changes nothing. The names are those of peft.

    Args:
        base: the layer; its weight and bias stop requiring a gradient.
        rank: r.
        alpha: the adapter's scale times r.

    Example:
        >>> layer = AdaptedLinear(nn.Linear(6, 3), rank=2)
        >>> [name for name, p in layer.named_parameters() if p.requires_grad]
        ['lora_A', 'lora_B']
    """

    def __init__(self, base: nn.Linear, rank: int = 8, alpha: float = 8.0) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"AdaptedLinear: rank must be 1 or more, got {rank}")
        self.base_layer = base.requires_grad_(False)
        limit = 1 / sqrt(base.in_features)
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features).uniform_(-limit, limit))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of a batch."""
        out: Tensor = self.base_layer(x) + self.scaling * (x @ self.lora_A.T @ self.lora_B.T)
        return out


def lora_mlp(
    inputs: int = 8,
    outputs: int = 1,
    width: int = 128,
    depth: int = 1,
    *,
    rank: int = 8,
    alpha: float = 8.0,
    base: bool = False,
    heads: int = 0,
) -> MLP:
    """A perceptron whose hidden layers are frozen, with adapters, and whose head is trained.

    Args:
        inputs: how many columns, or channels times pixels.
        outputs: how many outputs.
        width: units of a hidden layer.
        depth: how many hidden layers, one at least.
        rank: of every adapter.
        alpha: the adapters' scale times the rank.
        base: let the frozen weights travel, as FedEx-LoRA needs it: they are part of the model, though no client
            trains them.
        heads: how many trained cores each adapter has between its factors, see `add_cores`; 0 for plain adapters.

    Example:
        >>> sum(p.numel() for p in lora_mlp().parameters() if p.requires_grad)
        1217
    """
    if depth < 1:
        raise ValueError(f"lora_mlp: depth must be 1 or more, got {depth}: the head has no adapter")
    net = MLP(inputs, outputs, width, depth)
    for i, layer in enumerate(net.hidden):
        if isinstance(layer, nn.Linear):
            net.hidden[i] = AdaptedLinear(layer, rank, alpha)
    if heads:
        add_cores(net, heads)
    if base:
        open_base(net)
    return net


class _Cores(nn.Module):
    """B of an adapter as B_h s_h C_h, head by head: a parametrization, so that its layer computes and merges as before.

    Args:
        frame: B, (d_out, r).
        heads: how many.
    """

    def __init__(self, frame: Tensor, heads: int) -> None:
        super().__init__()
        self.frame = nn.Parameter(nn.init.orthogonal_(torch.empty_like(frame.flatten(1))).reshape(frame.shape))
        self.heads = heads

    def forward(self, cores: Tensor, scales: Tensor) -> Tensor:
        """The columns of all heads."""
        frame = self.frame.reshape(len(self.frame), self.heads, -1)
        return torch.einsum("dhr,hrk->dhk", frame, scales[:, None, None] * cores).reshape(self.frame.shape)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Cores of zero and scales of one."""
        rank = weight.shape[1] // self.heads
        return weight.new_zeros(self.heads, rank, rank), weight.new_ones(self.heads)


def add_cores(module: nn.Module, heads: int = 1) -> nn.Module:
    """Give every adapter trained cores between fixed factors: B A becomes the sum over heads of s_h B_h C_h A_h.

    The rows of A and the columns of B are divided among the heads, random and orthonormal; C_h is square, zero at
    first, and s_h a number, 1 at first. Fed-SB and Ravan need such adapters. Call it after `peft.get_peft_model`.

    Args:
        module: a model of peft or with `AdaptedLinear`, which is changed and returned.
        heads: how many cores an adapter has; its rank must be a multiple.

    Example:
        >>> net = add_cores(AdaptedLinear(nn.Linear(6, 3), rank=4), heads=2)
        >>> [tuple(p.shape) for p in net.parametrizations["lora_B"].parameters()]
        [(2, 2, 2), (2,), (3, 4)]
    """
    found = [name for name, p in module.named_parameters() if p.dim() > 1 and re.search(r"(^|\.)lora_B(\.|$)", name)]
    if not found or heads < 1:
        raise ValueError(
            f"add_cores: heads must be 1 or more, got {heads}, and a linear layer must have an adapter; call it after "
            "peft.get_peft_model"
        )
    for name in found:
        owner, _, leaf = name.rpartition(".")
        a, b = module.get_parameter(name.replace("lora_B", "lora_A")), module.get_parameter(name)
        if b.shape[1] % heads:
            raise ValueError(f"add_cores: {name} has rank {b.shape[1]}, which {heads} heads do not divide")
        with torch.no_grad():
            a.copy_(nn.init.orthogonal_(torch.empty_like(a.flatten(1))).reshape(a.shape))
        parametrize.register_parametrization(module.get_submodule(owner), leaf, _Cores(b, heads))
    return module


def fold_cores(module: nn.Module) -> nn.Module:
    """Make plain adapters of those with cores, which compute the same: the cores go into B.

    Args:
        module: the model, which is changed and returned.
    """
    for part in list(module.modules()):
        for name in list(getattr(part, "parametrizations", ())):
            if isinstance(part.parametrizations[name][0], _Cores):  # type: ignore[index]
                parametrize.remove_parametrizations(part, name)
    return module


def open_base(module: nn.Module) -> nn.Module:
    """Let the weights under a model's adapters travel: they become part of the model that the server keeps.

    FedEx-LoRA and FLoRA write into these weights; clients do not train them. Call it last, on a model of peft or with
    `AdaptedLinear`.

    Args:
        module: the model, which is changed and returned.
    """
    found = 0
    for part in module.modules():
        weight = getattr(getattr(part, "base_layer", None), "weight", None)
        if isinstance(weight, Tensor):
            if not weight.is_floating_point():
                raise ValueError(
                    f"open_base: a weight is quantised, {weight.dtype}, and cannot be written to; load the model with "
                    "bfloat16 weights, or use a method that leaves the base alone, such as ffa-lora"
                )
            weight.requires_grad_()
            found += 1
    if not found:
        raise ValueError("open_base: no layer has an adapter; call it after peft.get_peft_model")
    return module
