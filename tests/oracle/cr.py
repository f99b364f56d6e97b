"""FedCR, one example and one sample at a time, straight from the reference sheets.

The network is known here: a linear body under tanh, a linear layer of moments and a linear head. The statistics of a
class are kept as lists of its examples' Gaussians and multiplied pair by pair, as the released code does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .methods import Params, Path, Settings
from .personal import Own, Problem, average, stepped

Noise = Callable[[int, int], torch.Generator]
Gaussians = list[tuple[Tensor, Tensor]]
HEAD = {"head.weight", "head.bias"}


@dataclass
class Hyper:
    """z, J, beta, beta2, the direction of the divergence and the epochs of tuning."""

    latent: int
    samples: int
    beta: float
    beta2: float
    encoder_first: bool
    tuned: int


def moments(x: Params, point: Tensor, z: int) -> tuple[Tensor, Tensor]:
    """mu(x) and sig(x) = log(1 + e^raw) of one example."""
    hidden = torch.tanh(x["body.0.weight"] @ point + x["body.0.bias"])
    raw = x["moments.weight"] @ hidden + x["moments.bias"]
    return raw[:z], torch.log(1 + torch.exp(raw[z:]))


def kl(p: tuple[Tensor, Tensor], q: tuple[Tensor, Tensor]) -> Tensor:
    """KL(N(a, s^2) || N(b, t^2)) = sum log(t/s) + (s^2 + (a-b)^2)/(2 t^2) - 1/2."""
    (a, s), (b, t) = p, q
    return (torch.log(t / s) + (s * s + (a - b) ** 2) / (2 * t * t) - 0.5).sum()


def logits(x: Params, mu: Tensor, sig: Tensor, eps: Tensor) -> Tensor:
    """What the head says of one sample."""
    return x["head.weight"] @ (mu + sig * eps) + x["head.bias"]


def entropy(scores: Tensor, label: int) -> Tensor:
    """The cross entropy of one vector of scores."""
    return torch.log(torch.exp(scores).sum()) - scores[label]


def gradient(x: Params, batch: Any, eps: Tensor, loss: Callable[[Params, Tensor, int, Tensor], Tensor]) -> Params:
    """The gradient of the mean of a loss of (x, point, label, its J samples) over a batch."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in x.items()}
    points, labels = batch
    each = [loss(leaves, points[n], int(labels[n]), eps[:, n]) for n in range(len(labels))]
    found = torch.autograd.grad(torch.stack(each).mean(), list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(x[n]) if g is None else g for n, g in zip(leaves, found, strict=True)}


def multiply(experts: Gaussians) -> tuple[Tensor, Tensor]:
    """The product of experts, pair by pair, from N(0, 1) on."""
    mu, sig = torch.zeros_like(experts[0][0]), torch.ones_like(experts[0][0])
    for other, width in experts:
        precise, sharp = 1 / sig**2, 1 / width**2
        mu, sig = (mu * precise + other * sharp) / (precise + sharp), (precise + sharp) ** -0.5
    return mu, sig


def fedcr(
    p: Problem, s: Settings, rounds: int, h: Hyper, classes: int, epochs: int, noise: Noise
) -> tuple[Path, list[Gaussians], Own]:
    """Models and class Gaussians after each round, and what each client is evaluated with after the last."""
    w, heads, path, result = p.start(), dict[int, Params](), [], []
    one = torch.zeros(h.latent, dtype=torch.float64)
    common: Gaussians = [(one, one + 1) for _ in range(classes)]
    for t in range(rounds):
        moved: Own = {}
        seen: dict[int, Gaussians] = {}
        for i in p.cohort(t):
            x = {n: heads[i][n] if i in heads and n in HEAD else w[n] for n in w}
            stream, batches, move = noise(i, t), p.batches(i, t), s.mover()

            def loss(x: Params, point: Tensor, label: int, eps: Tensor, common: Gaussians = common) -> Tensor:
                mu, sig = moments(x, point, h.latent)
                pair = (common[label], (mu, sig))
                far = kl(*(reversed(pair) if h.encoder_first else pair))
                return sum(entropy(logits(x, mu, sig, e), label) for e in eps) / h.samples + h.beta * far

            for k, batch in enumerate(batches):
                points, labels = batch
                if k >= len(batches) * (epochs - 1) // epochs:
                    for point, label in zip(points, labels.tolist(), strict=True):
                        seen.setdefault(label, []).append(moments(x, point, h.latent))
                g = gradient(x, batch, samples(h, len(labels), stream), loss)
                x = stepped(s, move, s.lr * s.decay**t, g, x, set(x))
            heads[i] = x
            moved[i] = {n: w[n] if n in HEAD else x[n] for n in w}
        w = average(p, p.cohort(t), w, moved, sizes=False)
        new = {c: multiply(experts) for c, experts in seen.items()}
        common = [
            tuple((1 - h.beta2) * a + h.beta2 * b for a, b in zip(old, new[c], strict=True)) if c in new else old  # type: ignore[misc]
            for c, old in enumerate(common)
        ]
        path.append(w)
        result.append(common)
    own = {i: {n: heads[i][n] if i in heads and n in HEAD else w[n] for n in w} for i in range(p.population)}
    return path, result, {i: tune(p, s, rounds, h, i, own[i], noise) for i in own}


def tune(p: Problem, s: Settings, rounds: int, h: Hyper, client: int, x: Params, noise: Noise) -> Params:
    """Some epochs on the head alone, of the cross entropy of the mean logits."""
    stream, move = noise(client, rounds), s.mover()

    def loss(x: Params, point: Tensor, label: int, eps: Tensor) -> Tensor:
        mu, sig = moments(x, point, h.latent)
        return entropy(sum(logits(x, mu, sig, e) for e in eps) / h.samples, label)  # type: ignore[arg-type]

    for batch in p.epochs(client, rounds, h.tuned):
        g = gradient(x, batch, samples(h, len(batch[1]), stream), loss)
        x = stepped(s, move, s.lr * s.decay**rounds, g, x, HEAD)
    return x


def samples(h: Hyper, count: int, stream: torch.Generator) -> Tensor:
    """The noise of a step: (samples, examples, latent)."""
    return torch.randn(h.samples, count, h.latent, generator=stream, dtype=torch.float64)
