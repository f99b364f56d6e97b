"""A model as people write them: a causal mask, tied weights, buffers of every dtype and weights in bfloat16."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, softmax

WORDS, WIDTH, LENGTH = 7, 8, 5


class Block(nn.Module):
    """Attention under a mask that is a buffer."""

    mask: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())
        self.register_buffer("bias", torch.zeros(LENGTH, LENGTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(1, 2) / WIDTH**0.5).float() + self.bias
        weights = softmax(scores.masked_fill(~self.mask, float("-inf")), dim=-1).to(v.dtype)
        out: Tensor = x + self.out(weights @ v)
        return out


class Language(nn.Module):
    """A small causal language model with tied embeddings."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.block = nn.Embedding(WORDS, WIDTH), Block()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("positions", torch.arange(LENGTH))

    def forward(self, x: Tensor) -> Tensor:
        assert torch.equal(self.positions, torch.arange(LENGTH))
        out: Tensor = self.head(self.block(self.tokens(x)))
        return out


class Everything(nn.Module):
    """A language model in bfloat16 beside statistics and constants of every dtype, and a float32 scale."""

    moment: Tensor
    seen: Tensor
    rotation: Tensor
    flags: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.language = Language().bfloat16()
        self.norm, self.scale = nn.BatchNorm1d(WORDS), nn.Parameter(torch.ones(WORDS))
        self.register_buffer("moment", torch.zeros(WORDS, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int32))
        self.register_buffer("rotation", torch.polar(torch.ones(3), torch.arange(3.0)))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("ratio", torch.full((2,), 0.5, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.norm(self.language(x).float().flatten(0, 1)) * self.scale
        if self.training:
            self.moment = 0.9 * self.moment + 0.1 * logits.detach().double().mean(0)  # a new tensor, as people do
            self.seen += 1
            self.flags.logical_not_()  # a client must not see what another left
        out: Tensor = logits + float(self.rotation.imag.sum()) * float(self.flags[0])
        return out


@dataclass(frozen=True)
class Texts:
    """Next words; six clients."""

    population: int = 6

    def model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return Everything()

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return cross_entropy(model(batch[:, :-1]), batch[:, 1:].flatten())

    def examples(self, client: int) -> int:
        return 6 + client

    def batches(self, client: int, size: int, generator: Generator) -> Any:
        own = torch.randint(WORDS, (self.examples(client), LENGTH + 1), generator=Generator().manual_seed(client))
        order = torch.randperm(len(own), generator=generator)
        return iter(own[order].split(size))
