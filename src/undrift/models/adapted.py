"""Low-rank adapters on linear layers, and a perceptron of such layers: adapters without another package."""

from math import sqrt

import torch
from torch import Tensor, nn

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
    if base:
        open_base(net)
    return net


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
